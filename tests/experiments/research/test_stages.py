"""One account over several stages: against dp-accounting and Opacus, and from both sides."""

import itertools
import math
import warnings
from collections.abc import Sequence
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import each_is_refused
from scipy.integrate import quad
from scipy.stats import norm

from fedcal.accounting import gaussian_epsilon, gaussian_multiplier, poisson_gaussian_epsilon
from fedcal.experiments.research.stages import (
    Guarantee,
    Stage,
    composed_delta,
    composed_epsilon,
)

DELTA = 1e-5
TRAINING = Stage(0.8, 400, 0.02)


def library_epsilon(of: Sequence[Stage], delta: float) -> float:
    """dp-accounting as it comes: its default grid and adjacency."""
    accountant = PLDAccountant()
    for stage in of:
        event = dp_accounting.GaussianDpEvent(stage.multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(stage.rate, event)
        accountant.compose(event if stage.rate == 1 else sampled, stage.rounds)
    return float(accountant.get_epsilon(delta))


def opacus_epsilon(name: str, of: Sequence[Stage], delta: float) -> float:
    """Opacus's accountant of that name."""
    opacus = pytest.importorskip("opacus.accountants")
    accountant = opacus.create_accountant(name)
    accountant.history = [(stage.multiplier, stage.rate, stage.rounds) for stage in of]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta))


TOGETHER = [
    (TRAINING, Stage(4.0, 4)),
    (TRAINING, Stage(2.0, 50, 0.1)),
    (Stage(1.0, 100, 0.05), Stage(1.5, 30, 0.2), Stage(8.0)),
    (Stage(0.6, 1953, 256 / 50_000), Stage(3.0, 4)),  # ten epochs, batches of 256
]


@pytest.mark.parametrize("of", TOGETHER, ids=str)
def test_stages_cost_what_dp_accounting_and_opacus_say(of):
    found = composed_epsilon(of, DELTA)
    assert found == pytest.approx(library_epsilon(of, DELTA), rel=1e-3)
    assert found == pytest.approx(opacus_epsilon("prv", of, DELTA), abs=0.011)  # its error is .01
    assert found <= opacus_epsilon("rdp", of, DELTA)
    assert found == composed_epsilon(of[::-1], DELTA)


def test_one_stage_costs_what_it_costs_alone():
    assert composed_epsilon([Stage(5.0, 4)], DELTA) == gaussian_epsilon(DELTA, 5.0, 4)
    assert composed_epsilon([TRAINING], DELTA) == poisson_gaussian_epsilon(DELTA, 0.8, 400, 0.02)
    halves = [Stage(0.8, 100, 0.02), Stage(0.8, 300, 0.02)]
    assert composed_epsilon(halves, DELTA) == composed_epsilon([TRAINING], DELTA)
    assert composed_epsilon([Guarantee(0.7)], DELTA) == pytest.approx(0.7, rel=0.01)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(0.5, 50), st.integers(1, 50)), min_size=2, max_size=4))
def test_gaussian_stages_add_up_in_closed_form(noises):
    mu = math.sqrt(sum(rounds / multiplier**2 for multiplier, rounds in noises))
    found = composed_epsilon([Stage(*noise) for noise in noises], DELTA)
    assert found == pytest.approx(gaussian_epsilon(DELTA, 1 / mu), rel=1e-12)


def test_a_guarantee_costs_less_than_its_epsilon_and_never_less_than_noise_that_has_it():
    alone = composed_epsilon([TRAINING], DELTA)
    noise = Stage(gaussian_multiplier(0.5, 1e-6))
    for known in (Guarantee(0.5), Guarantee(0.25, rounds=2), Guarantee(0.5, 1e-6)):
        assert alone < composed_epsilon([TRAINING, known], DELTA) < alone + 0.5
    with_noise = composed_epsilon([TRAINING, noise], DELTA)
    assert with_noise <= composed_epsilon([TRAINING, Guarantee(0.5, 1e-6)], DELTA)


def optimal(epsilon: float, delta: float, k: int) -> list[tuple[float, float]]:
    """All (epsilon, delta) of k guarantees together by Kairouz, Oh & Viswanath 2015, Theorem 3.3.

    The curve between two of them is linear in exp(epsilon).
    """
    e = [Fraction(math.exp(epsilon)) ** j for j in range(k + 1)]
    curve = []
    for i in range(k // 2 + 1):
        terms = (math.comb(k, j) * (e[k - j] - e[k - 2 * i + j]) for j in range(i))
        inside = sum(terms, Fraction(0)) / (1 + e[1]) ** k
        failed = 1 - (1 - Fraction(delta)) ** k * (1 - inside)
        curve.append(((k - 2 * i) * epsilon, float(failed)))
    return curve


@pytest.mark.parametrize(
    ("known", "delta"),
    [
        (Guarantee(0.1, 0.0, 50), 1e-5),
        (Guarantee(1.0, 0.0, 30), 0.06),
        (Guarantee(0.3, 1e-6, 40), 1e-3),
        (Guarantee(0.02, 1e-9, 80), 1e-6),
        (Guarantee(0.7), 1e-5),
        (Guarantee(3.0, 1e-4, 7), 0.3),
    ],
    ids=str,
)
def test_equal_guarantees_cost_what_the_optimal_composition_says(known, delta):
    curve = optimal(known.epsilon, known.delta, known.rounds)
    for epsilon, exact in curve:
        found = composed_delta([known], epsilon)
        assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-3) + 1e-12
    ((above, least), (below, most)) = (
        next((a, b) for a, b in itertools.pairwise(curve) if a[1] <= delta < b[1])
        if known.rounds > 1
        else ((known.epsilon, 0.0), (0.0, math.tanh(known.epsilon / 2)))
    )
    share = (most - delta) / (most - least)
    exact = below + math.log1p(share * math.expm1(above - below))
    assert exact * (1 - 1e-12) <= composed_epsilon([known], delta) <= exact * (1 + 1e-4)


def test_the_figures_of_guarantees_that_came_out_too_large():
    assert composed_epsilon([Guarantee(0.1, 0.0, 50)], DELTA) == pytest.approx(2.8447, abs=1e-4)
    assert composed_epsilon([Guarantee(1.0, 0.0, 30)], 0.06) == pytest.approx(19.980, abs=1e-3)
    assert composed_delta([Guarantee(1.0), Guarantee(2.0)], 3.0) == 0.0
    assert composed_epsilon([Guarantee(1.0), Guarantee(2.0)], 1e-9) <= 3.0


def test_no_delta_is_claimed_that_rounding_of_convolutions_may_hide():
    sampled = Stage(1.0, 10, 0.1)  # its exact delta there is below 1e-200
    assert (
        5e-14 <= composed_delta([sampled], 60.0) < composed_delta([sampled, Guarantee(0.3)], 60.0)
    )
    assert composed_delta([sampled, Guarantee(0.3)], 60.0) < 1e-12


def of_coins(epsilons: Sequence[float], delta: float) -> float:
    """The exact epsilon of coins of these epsilons: all sums of losses, one by one."""
    losses, shares = np.zeros(1), np.ones(1)
    for e in epsilons:
        right = 1 / (1 + math.exp(-e))
        losses = np.concatenate([losses + e, losses - e])
        shares = np.concatenate([shares * right, shares * (1 - right)])
    low, high = 0.0, math.fsum(epsilons)
    for _ in range(60):
        middle = (low + high) / 2
        enough = np.sum(shares * np.maximum(-np.expm1(middle - losses), 0.0)) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


@pytest.mark.parametrize(
    "epsilons", [(0.4, 0.9), (0.1, 0.1, 0.37, 2.0, 1.1), np.linspace(0.01, 0.5, 18)], ids=len
)
def test_different_guarantees_cost_what_all_sums_of_their_losses_say(epsilons):
    for delta in (0.05, 1e-3):
        exact = of_coins(epsilons, delta)
        found = composed_epsilon([Guarantee(float(e)) for e in epsilons], delta)
        assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-3)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.floats(0.05, 3), st.integers(1, 6), st.floats(0.3, 8), st.floats(0, 4))
def test_noise_beside_guarantees_costs_what_an_integral_says(each, rounds, multiplier, epsilon):
    """Over the noisy sum, for each number of coins that tell the truth."""
    right, mu = 1 / (1 + math.exp(-each)), 1 / multiplier
    exact = 0.0
    for k in range(rounds + 1):
        loss = (2 * k - rounds) * each
        one = math.comb(rounds, k) * right**k * (1 - right) ** (rounds - k)

        def excess(x: float, rest: float = epsilon - loss) -> float:
            return max(0.0, norm.pdf(x - mu) - math.exp(rest) * norm.pdf(x))

        root = (epsilon - loss) / mu + mu / 2
        low = max(root, mu - 12)
        exact += one * quad(excess, low, max(low, mu) + 12, limit=200)[0]
    found = composed_delta([Guarantee(each, 0.0, rounds), Stage(multiplier)], epsilon)
    assert found == pytest.approx(exact, rel=5e-3, abs=1e-11)
    assert found >= exact * (1 - 1e-6) - 1e-15


def test_guarantees_beside_sampled_noise_are_rounded_once():
    """And what rounding up costs does not grow with their number."""
    alone, steps = composed_epsilon([TRAINING], DELTA), Guarantee(0.02, 0.0, 100)
    square = 100 * 0.02**2  # (epsilon^2 / 2)-zCDP each, as Gaussian noise of mu^2 = epsilon^2
    found = composed_epsilon([TRAINING, steps], DELTA)
    assert alone < found < 1.003 * composed_epsilon([TRAINING, Stage(1 / math.sqrt(square))], DELTA)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_noise_has_the_delta_that_guarantees_leave(share):
    """A guarantee of (0.001, d) fails with probability d, and tells next to nothing otherwise."""
    known = Guarantee(1e-3, share * DELTA)
    least = gaussian_epsilon((1 - share) * DELTA / (1 - known.delta), 5.0, 4)
    found = composed_epsilon([Stage(5.0, 4), known], DELTA)
    assert least < found < least + 2e-3
    twice = Guarantee(1e-3, share * DELTA / 2, rounds=2)
    failed = known.delta - twice.delta**2
    least = gaussian_epsilon((DELTA - failed) / (1 - failed), 5.0, 4)
    assert least < composed_epsilon([Stage(5.0, 4), twice], DELTA) < least + 4e-3


def test_what_has_no_account_is_refused():
    table = [
        (lambda: Stage(0.0), "multiplier"),
        (lambda: Stage(1.0, 0), "rounds"),
        (lambda: Stage(1.0, 1, 1.5), "rate"),
        (lambda: Guarantee(0.0), "epsilon"),
        (lambda: Guarantee(1.0, 1.0), "delta"),
        (lambda: composed_epsilon([], DELTA), "at least one stage"),
        (lambda: composed_epsilon([Stage(1.0)], 0.0), "delta"),
        (lambda: composed_epsilon([TRAINING, Stage(1.0)], 0.03), "below the sampling rate"),
        (lambda: composed_epsilon([TRAINING, Stage(1.0)], 1e-13), "at least 1e-12"),
        (lambda: composed_epsilon([Guarantee(1.0, 1e-5), TRAINING], DELTA), "too small"),
    ]
    each_is_refused(table, lambda call: call())
