"""Accounting against independent oracles, and its inversions from both sides of the target."""

import math
from typing import Any

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import each_is_refused, refused

from fedcal import accounting
from fedcal.accounting import exponential_epsilon, gaussian_delta, gaussian_multiplier

steady = settings(max_examples=60, deadline=None, derandomize=True)
epsilons = st.floats(1e-3, 200)
deltas = st.floats(1e-12, 0.5)
numbers_of_rounds = st.integers(1, 1000)
rates = st.floats(1e-4, 1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("multiplier", [1000.0, 100.0, 10.0, 1.0, 0.1, 0.02])
def test_delta_equals_its_definition_in_sixty_digits(epsilon, multiplier):
    with mpmath.workdps(60 + int(epsilon)):
        mu, eps = 1 / mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
    # exact is 0 in floats where it is below 1e-308
    assert gaussian_delta(epsilon, multiplier) == pytest.approx(float(exact), rel=1e-9, abs=1e-307)


def test_rounds_compose_to_one_gaussian():
    assert gaussian_delta(1.0, 6.0, rounds=9) == pytest.approx(gaussian_delta(1.0, 2.0), rel=1e-12)


@steady
@given(epsilons, deltas, numbers_of_rounds)
@example(0.01, 1e-12, 1000)
@example(1e-6, 1e-9, 1)
@example(1e5, 1e-5, 4)
@example(1.0, 1e-300, 4)
@example(1.0, 1 - 1e-9, 1)
def test_the_multiplier_is_accepted_and_a_millionth_less_is_not(epsilon, delta, rounds):
    multiplier = gaussian_multiplier(epsilon, delta, rounds)
    assert gaussian_delta(epsilon, multiplier, rounds) <= delta
    assert gaussian_delta(epsilon, multiplier * (1 - 1e-6), rounds) > delta


@pytest.mark.parametrize("rounds", [1, 4, 12])
def test_two_thirds_of_the_noise_break_the_budget_and_three_halves_waste_it(rounds):
    multiplier = gaussian_multiplier(1.0, 1e-5, rounds)
    assert gaussian_delta(1.5, multiplier * 2 / 3, rounds) > 1e-5
    assert gaussian_delta(0.67, multiplier * 3 / 2, rounds) < 1e-5


@steady
@given(st.floats(1e-6, 600), rates)
@example(0.7, 1.0)
def test_sampling_turns_the_release_epsilon_into_the_target(epsilon, rate):
    release = exponential_epsilon(epsilon, rate)
    assert release >= epsilon
    with mpmath.workdps(400):
        amplified = mpmath.log(1 + mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(release)))
        assert float(amplified) == pytest.approx(epsilon, rel=1e-12)
    assert exponential_epsilon(1e6, 0.5) == pytest.approx(1e6 + math.log(2), rel=1e-15)


def library_epsilon(delta: float, multiplier: float, rounds: int, rate: float) -> float:
    """dp-accounting as it comes: its default grid and adjacency."""
    accountant = PLDAccountant()
    sampled = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant.compose(sampled, rounds)
    return float(accountant.get_epsilon(delta))


def test_the_sampled_multiplier_is_the_librarys_from_the_private_side():
    rounds, rate = 4, 0.1
    multiplier = gaussian_multiplier(1.0, 1e-5, rounds, rate)
    assert 0.999 < library_epsilon(1e-5, multiplier, rounds, rate) <= 1.0
    assert library_epsilon(1e-5, multiplier * 2 / 3, rounds, rate) > 1.5
    assert library_epsilon(1e-5, multiplier * 3 / 2, rounds, rate) < 0.67
    one = gaussian_multiplier(1.0, 1e-5, 1, rate)  # in closed form
    assert library_epsilon(1e-5, one, 1, rate) == pytest.approx(1.0, rel=1e-3)


def test_pld_is_not_below_the_closed_form_where_it_has_one():
    # R unsampled rounds: at rate 1 the event goes through the same FFT as a sampled one.
    for delta, epsilon, rounds in ((1e-5, 2.0, 12), (1e-12, 8.0, 1000), (6e-12, 10.0, 5000)):
        multiplier = gaussian_multiplier(epsilon, delta, rounds)
        for fraction in (0.5, 0.9, 1.0, 1.3):
            grid = fraction * accounting._grid(epsilon, multiplier, rounds, 1.0)
            pld = accounting._pld_epsilon(delta, multiplier, rounds, 1.0, grid)
            assert epsilon <= pld <= epsilon * 1.01


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds", "rate"), [(0.01, 1e-12, 1000, 1e-3), (1000.0, 1e-5, 12, 0.1)]
)
def test_extreme_sampled_targets_are_met(epsilon, delta, rounds, rate):
    multiplier = gaussian_multiplier(epsilon, delta, rounds, rate)
    grid = 0.9 * accounting._grid(epsilon, multiplier, rounds, rate)
    spent = [accounting._pld_epsilon(delta, multiplier * f, rounds, rate, grid) for f in (1, 0.98)]
    assert spent[0] <= epsilon * 1.0001 < spent[1]
    assert multiplier <= gaussian_multiplier(epsilon, delta, rounds)


def test_a_target_without_a_meaning_or_below_the_arithmetic_is_refused():
    table: list[tuple[tuple[Any, ...], str]] = [
        *(((epsilon, 1e-5), "^epsilon must be") for epsilon in (0.0, math.nan, math.inf, "1")),
        *(((1.0, delta), "^delta must be") for delta in (1.0, -1e-9, math.nan)),
        *(((1.0, 1e-5, rounds), "^rounds must be") for rounds in (0, 1.5, True)),
        *(((1.0, 1e-5, 4, q), "^the sampling rate must be") for q in (0.0, 1.1, math.nan)),
        ((1.0, 1e-3, 4, 1e-3), "sampling rate"),  # which alone would meet this delta
        ((1.0, 1e-13, 4, 0.1), "1e-12"),
    ]
    each_is_refused(table, lambda target: gaussian_multiplier(*target))
    for multiplier in (0.0, -1.0, math.nan, math.inf):
        refused("multiplier", gaussian_delta, 1.0, multiplier)
    refused("1e-10", gaussian_multiplier, 1.0, 1e-11, 100_000, 0.1)
    assert gaussian_multiplier(1.0, 1e-13, 1, 0.1) < gaussian_multiplier(1.0, 1e-13)
