"""Accounting against independent oracles, and its inversions from both sides of the target."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import each_is_refused, refused

from fedcal import accounting as module
from fedcal.accounting import (
    check_delta,
    check_epsilon,
    check_rate,
    check_rounds,
    exponential_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
    poisson_gaussian_epsilon,
    zcdp_multiplier,
    zcdp_rho,
)

laws = settings(max_examples=60, deadline=None, derandomize=True)
epsilons = st.floats(1e-3, 200)
deltas = st.floats(1e-12, 0.5)
multipliers = st.floats(0.05, 1000)
numbers_of_rounds = st.integers(1, 1000)
rates = st.floats(1e-4, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of the test's own, and a process that remembers nothing."""
    monkeypatch.setenv("FEDCAL_CACHE", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache"
    forget()


def forget() -> None:
    module._amplified_multiplier.cache_clear()
    module._poisson_gaussian_epsilon.cache_clear()


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
    assert gaussian_delta(1.0, 6.0, rounds=9) > 100 * gaussian_delta(1.0, 6.0)


@laws
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
    assert gaussian_epsilon(1e-5, multiplier, rounds) == pytest.approx(1.0, rel=1e-9)
    assert gaussian_epsilon(1e-5, multiplier * 2 / 3, rounds) > 1.5
    assert gaussian_epsilon(1e-5, multiplier * 3 / 2, rounds) < 0.67


@laws
@given(deltas, multipliers, numbers_of_rounds)
def test_epsilon_is_the_smallest_that_delta_grants(delta, multiplier, rounds):
    epsilon = gaussian_epsilon(delta, multiplier, rounds)
    if epsilon == 0.0:  # the total variation distance is within delta
        mu = math.sqrt(rounds) / multiplier
        assert math.erf(mu / math.sqrt(8)) <= delta * (1 + 1e-9)
    else:
        assert gaussian_delta(epsilon, multiplier, rounds) <= delta
        assert gaussian_delta(epsilon * (1 - 1e-6), multiplier, rounds) > delta


@laws
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


@pytest.mark.parametrize(("rounds", "rate"), [(4, 0.1), (30, 0.01)])
def test_the_sampled_multiplier_is_the_librarys_from_the_private_side(rounds, rate):
    multiplier = gaussian_multiplier(1.0, 1e-5, rounds, rate)
    assert poisson_gaussian_epsilon(1e-5, multiplier, rounds, rate) <= 1.0
    assert library_epsilon(1e-5, multiplier, rounds, rate) <= 1.0
    assert library_epsilon(1e-5, multiplier / 1.001, rounds, rate) > 1.0
    assert poisson_gaussian_epsilon(1e-5, multiplier * 2 / 3, rounds, rate) > 1.5
    assert poisson_gaussian_epsilon(1e-5, multiplier * 3 / 2, rounds, rate) < 0.67


def test_one_sampled_round_in_closed_form_agrees_with_pld():
    exact = poisson_gaussian_epsilon(1e-5, 2.0, 1, 0.1)
    assert library_epsilon(1e-5, 2.0, 1, 0.1) == pytest.approx(exact, rel=1e-3)


@laws
@given(epsilons, st.floats(1e-12, 1e-5), st.floats(1e-4, 0.99))
def test_one_sampled_round_is_inverted_to_the_private_side(epsilon, delta, rate):
    multiplier = gaussian_multiplier(epsilon, delta, 1, rate)
    assert poisson_gaussian_epsilon(delta, multiplier, 1, rate) <= epsilon
    assert poisson_gaussian_epsilon(delta, multiplier * (1 - 1e-6), 1, rate) > epsilon
    assert multiplier <= gaussian_multiplier(epsilon, delta)


def test_pld_is_not_below_the_closed_form_where_it_has_one():
    # R unsampled rounds: at rate 1 the event goes through the same FFT as a sampled one.
    for delta, multiplier, rounds in ((1e-5, 7.0, 12), (1e-12, 30.0, 1000), (6e-12, 50.0, 5000)):
        exact = gaussian_epsilon(delta, multiplier, rounds)
        for fraction in (0.5, 0.9, 1.0, 1.3):
            grid = fraction * module._grid(exact, multiplier, rounds, 1.0)
            pld = module._pld_epsilon(delta, multiplier, rounds, 1.0, grid)
            assert exact <= pld <= exact * 1.01


EXTREME = [
    (0.01, 1e-5, 12, 0.1),
    (0.01, 1e-12, 1000, 1e-3),
    (1.0, 1e-5, 12, 0.9999),
    (100.0, 1e-12, 4, 1e-4),
    (100.0, 1e-5, 1000, 0.5),
    (1000.0, 1e-5, 12, 0.1),
]


@pytest.mark.parametrize(("epsilon", "delta", "rounds", "rate"), EXTREME)
def test_extreme_sampled_targets_are_met(epsilon, delta, rounds, rate):
    multiplier = gaussian_multiplier(epsilon, delta, rounds, rate)
    assert poisson_gaussian_epsilon(delta, multiplier, rounds, rate) <= epsilon
    assert poisson_gaussian_epsilon(delta, multiplier * 0.98, rounds, rate) > epsilon
    assert multiplier <= gaussian_multiplier(epsilon, delta, rounds)


def test_no_noise_to_speak_of_is_still_accounted_for():
    assert poisson_gaussian_epsilon(1e-5, 1e6, 4, 0.1) == 0.0
    assert 1000 < poisson_gaussian_epsilon(1e-5, 0.01, 4, 0.1) <= gaussian_epsilon(1e-5, 0.01, 4)


@laws
@given(st.floats(1e-2, 100), st.floats(1e-12, 0.1))
def test_rho_is_the_largest_that_meets_the_target(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert module._zcdp_delta(rho, epsilon) <= delta
    assert module._zcdp_delta(rho * (1 + 1e-6), epsilon) > delta


@laws
@given(st.floats(1e-2, 100), st.floats(1e-12, 0.1), numbers_of_rounds)
def test_the_papers_noise_is_never_below_the_tight_one(epsilon, delta, rounds):
    paper = zcdp_multiplier(epsilon, delta, rounds)
    assert gaussian_multiplier(epsilon, delta, rounds) <= paper
    assert paper == pytest.approx(math.sqrt(rounds) * zcdp_multiplier(epsilon, delta), rel=1e-12)


def test_the_papers_noise_is_the_lemmas():
    # sqrt(4 / (2 rho)) with rho from Lemma B.3, as dp-accounting's RDP conversion has it
    for epsilon, delta in ((1.0, 1e-5), (0.2, 1e-3), (10.0, 1e-8)):
        accountant = RdpAccountant(orders=[1 + k / 100 for k in range(1, 5000)])
        accountant.compose(dp_accounting.ZCDpEvent(zcdp_rho(epsilon, delta)))
        assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=1e-3)
    assert zcdp_multiplier(1.0, 1e-5, 4) == pytest.approx(8.09, abs=0.01)


NO_EPSILON = (0.0, -1.0, math.nan, math.inf, None, "1")
NO_DELTA = (1.0, -1e-9, 2.0, math.nan, None)
NO_RATE = (0.0, -0.1, 1.1, math.nan, math.inf)
NO_ROUNDS = (0, -1, 1.5, True, "4")
NO_MULTIPLIER = (0.0, -1.0, math.nan, math.inf)
BAD: tuple[tuple[str, tuple[Any, ...], Callable[[Any], object]], ...] = (
    ("epsilon must be", NO_EPSILON, check_epsilon),
    ("epsilon must be", NO_EPSILON, lambda e: gaussian_multiplier(e, 1e-5)),
    ("epsilon", NO_EPSILON, lambda e: exponential_epsilon(e, 0.5)),
    ("delta must be", NO_DELTA, check_delta),
    ("delta must be", NO_DELTA, lambda d: zcdp_rho(1.0, d)),
    ("delta must be", NO_DELTA, lambda d: gaussian_epsilon(d, 1.0)),
    ("the sampling rate must be", NO_RATE, check_rate),
    ("the sampling rate must be", NO_RATE, lambda q: gaussian_multiplier(1.0, 1e-5, 4, q)),
    ("rounds must be", NO_ROUNDS, check_rounds),
    ("rounds must be", NO_ROUNDS, lambda r: gaussian_multiplier(1.0, 1e-5, r)),
    ("", NO_MULTIPLIER, lambda m: gaussian_delta(1.0, m)),
    ("", NO_MULTIPLIER, lambda m: poisson_gaussian_epsilon(1e-5, m, 4, 0.1)),
)


def test_what_means_nothing_is_refused_in_one_line():
    for begins, values, call in BAD:
        each_is_refused([(value, "") for value in values], call, start=begins)


def test_gaussian_noise_without_delta_names_the_way_out():
    for call in (gaussian_multiplier, zcdp_multiplier):
        refused(r"^[^\n]*fedoneshot[^\n]*$", call, 1.0, 0.0, 4)


def test_a_delta_that_sampling_alone_would_meet_or_below_the_arithmetic_is_refused():
    refused("sampling rate", gaussian_multiplier, 1.0, 1e-3, 4, 1e-3)
    refused("sampling rate", poisson_gaussian_epsilon, 1e-3, 1.0, 4, 1e-3)
    refused("1e-12", gaussian_multiplier, 1.0, 1e-13, 4, 0.1)
    refused("1e-10", poisson_gaussian_epsilon, 1e-11, 1.0, 100_000, 0.1)
    assert gaussian_multiplier(1.0, 1e-13, 1, 0.1) < gaussian_multiplier(1.0, 1e-13)


PLAN = (1.0, 1e-5, 4, 0.5)


def entry(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def poison(folder: Path, **change: object) -> None:
    file = entry(folder)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    forget()


def test_a_wrong_entry_is_computed_anew(folder):
    first = gaussian_multiplier(*PLAN)
    wrong = (*(first * factor for factor in (0.999, 2 / 3, -1.0, 0.0, 1.01, 1e9)), math.nan, "7")
    for multiplier in (*wrong, math.inf, None, True, [7.0]):
        poison(folder, multiplier=multiplier)
        assert gaussian_multiplier(*PLAN) == first, multiplier
        assert json.loads(entry(folder).read_text())["multiplier"] == first  # and repaired
    for text in ("", "{", "[]", "\x00\xff", "[" * 4000, "7"):
        entry(folder).write_text(text, encoding="latin-1")
        forget()
        assert gaussian_multiplier(*PLAN) == first, text[:9]
