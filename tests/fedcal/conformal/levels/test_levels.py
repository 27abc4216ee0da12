"""Levels by the exact law of order statistic and noise: closed forms, simulation, order."""

import math

import numpy as np
import pytest

from fedcal.conformal.levels import NoiseFree, Normal, centred_level, covered, marginal_level

ALPHAS = (0.01, 0.05, 0.1, 0.3)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_without_noise_they_are_the_ranks_of_split_conformal_prediction(alpha):
    for n in (3, 9, 19, 20, 50, 99, 100, 1000, 12_345):
        level = marginal_level(n, alpha, NoiseFree())
        assert math.ceil(level) == math.ceil((n + 1) * (1 - alpha) - 1e-9)  # above a whole number


@pytest.mark.parametrize(("n", "std"), [(30, 0.4), (30, 6.0), (800, 12.0), (800, 300.0)])
def test_coverage_is_that_of_simulated_ranks(n, std):
    rng = np.random.default_rng(1)
    level, draws = 0.93 * n, 400_000
    noisy = level - std * rng.standard_normal(draws)
    mean = np.clip(np.ceil(noisy), 0, n + 1).mean() / (n + 1)
    assert covered(n, level, Normal(std)) == pytest.approx(mean, abs=2e-3)


@pytest.mark.parametrize("law", [NoiseFree(), Normal(5.0)])
def test_what_is_asked_for_is_kept_and_more_asks_for_more(law):
    for n in (60, 600):
        levels = [marginal_level(n, alpha, law) for alpha in ALPHAS]
        assert levels == sorted(levels, reverse=True)
        for alpha, level in zip(ALPHAS, levels, strict=True):
            assert covered(n, level, law) >= 1 - alpha > covered(n, level - 1e-3, law)
    assert marginal_level(600, 0.1, Normal(8.0)) >= marginal_level(600, 0.1, Normal(5.0)) - 1e-6


@pytest.mark.parametrize(("std", "alpha"), [(1e-3, 0.17), (0.3, 0.01), (3.0, 0.1)])
def test_a_private_number_of_rows_has_a_level_that_suits_each(std, alpha):
    law, share = Normal(std), 1 - alpha
    for fewest in (5, 60):
        level = centred_level(fewest, alpha, law)
        each = [marginal_level(n, alpha, law) - share * n for n in range(fewest, fewest + 200)]
        assert level >= max(each) - 1e-5
    assert centred_level(0.5, alpha, law) == math.inf


@pytest.mark.parametrize("law", [NoiseFree(), Normal(0.3), Normal(20.0)])
def test_a_level_from_a_number_of_rows_on_is_the_largest_of_all(law):
    """Levels go up and down with n: by a whole rank without noise."""
    each = [marginal_level(n, 0.1, law) - 0.9 * n for n in range(20, 220)]
    if law.reach[1] < 10.0:  # beyond these n nothing is new
        assert centred_level(20, 0.1, law) == pytest.approx(max(each), abs=1e-5)
