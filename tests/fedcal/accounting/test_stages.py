"""One account over several stages: against dp-accounting and Opacus, and from both sides."""

import math
import warnings
from collections.abc import Sequence

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import each_is_refused

from fedcal.accounting import (
    Guarantee,
    Stage,
    composed_epsilon,
    gaussian_epsilon,
    gaussian_multiplier,
    poisson_gaussian_epsilon,
    stages,
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


def test_the_convolution_is_not_below_the_closed_form():
    """Gaussian stages at rate 1 sent through the same FFT as sampled ones."""
    for epsilon_of in (2.0, 6.0):
        first = gaussian_multiplier(epsilon_of, DELTA, 2000)
        exact = composed_epsilon([Stage(first, 2000), Stage(3.0)], DELTA)
        parts = ((Stage(first, 2000, 1.0),), (), 1 / 9)
        for fraction in (0.3, 1.0, 1.5):
            found = stages._pld_epsilon(parts, DELTA, fraction * stages._grid(exact, parts))
            assert exact <= found <= exact * 1.002


def test_a_guarantee_costs_less_than_its_epsilon_and_never_less_than_noise_that_has_it():
    alone = composed_epsilon([TRAINING], DELTA)
    noise = Stage(gaussian_multiplier(0.5, 1e-6))
    for known in (Guarantee(0.5), Guarantee(0.25, rounds=2), Guarantee(0.5, 1e-6)):
        assert alone < composed_epsilon([TRAINING, known], DELTA) < alone + 0.5
    with_noise = composed_epsilon([TRAINING, noise], DELTA)
    assert with_noise <= composed_epsilon([TRAINING, Guarantee(0.5, 1e-6)], DELTA)


def test_randomised_response_in_closed_form():
    """Two guarantees are two coins: delta(epsilon) of their product by hand."""
    a, b, delta = 0.4, 0.9, 0.05
    p, q = math.exp(a) / (1 + math.exp(a)), math.exp(b) / (1 + math.exp(b))
    # both coins tell the truth; or only the second, whose loss is b - a
    exact = math.log((p * q - delta) / ((1 - p) * (1 - q)))
    assert exact > b - a
    found = composed_epsilon([Guarantee(a), Guarantee(b)], delta)
    assert exact <= found <= 1.01 * exact


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_noise_has_the_delta_that_guarantees_leave(share):
    """A guarantee of (0.001, d) fails with probability d, and tells next to nothing otherwise."""
    known = Guarantee(1e-3, share * DELTA)
    least = gaussian_epsilon((1 - share) * DELTA / (1 - known.delta), 5.0, 4)
    found = composed_epsilon([Stage(5.0, 4), known], DELTA)
    assert least < found < least + 2e-3
    twice = Guarantee(1e-3, share * DELTA / 2, rounds=2)
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
        (lambda: composed_epsilon([TRAINING, Stage(1.0)], 1e-13), "too small"),
        (lambda: composed_epsilon([Guarantee(1.0, 1e-5), TRAINING], DELTA), "too small"),
    ]
    each_is_refused(table, lambda call: call())
