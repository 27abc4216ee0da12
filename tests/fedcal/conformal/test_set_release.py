"""A release of noisy counts: the law of its noise, and thresholds scanned from the top."""

import numpy as np
import pytest
from scipy.stats import laplace, norm

from fedcal.conformal.levels import Noise, Tabled, marginal_level
from fedcal.conformal.page import FAILS, SetRelease
from fedcal.mechanisms import NoiseLaw
from fedcal.metrics.binning import decoder_of


@pytest.mark.parametrize(
    ("encoding", "height", "draws"), [("flat", 1, 1.0), ("tree", 3, 3.5), ("prefix", 1, 100.0)]
)
def test_tabled_laws_are_those_of_sums(encoding, height, draws):
    weights = np.cumsum(decoder_of(encoding, 16, height), axis=0)[:-1]
    noise = Noise(2.0, NoiseLaw(True, draws))
    law, more = noise.of_sums(weights)
    rng = np.random.default_rng(3)
    runs, scale = 100_000, 2.0 / np.sqrt(2 * draws)
    gammas = rng.gamma(draws, scale, (2, runs, weights.shape[1]))
    sums = (gammas[0] - gammas[1]) @ weights.T + more * rng.standard_normal((runs, len(weights)))
    std = np.linalg.norm(weights, axis=1).max() * 2.0
    assert sums.std(axis=0) == pytest.approx(std, rel=0.03)
    at = np.linspace(-4 * std, 4 * std, 41)
    seen = np.stack([np.mean(column[:, None] < at, axis=0) for column in sums.T])
    told = law.below(at)
    assert (told <= seen.min(axis=0) + 5 * 0.5 / np.sqrt(runs)).all()  # never more than there is
    assert (told >= seen.min(axis=0) - 0.012).all()  # a step of the table, and chance


def test_one_laplace_law_is_tabled_from_below():
    law, _ = Noise(1.0, NoiseLaw(True)).of_sums(np.eye(1))
    assert isinstance(law, Tabled)
    x = np.linspace(-9, 9, 3001)
    exact = laplace.cdf(x, scale=np.sqrt(0.5))
    assert (law.below(x) <= exact).all()
    assert (law.below(x) >= exact - 0.02).all()
    bound = Noise(1.0, NoiseLaw(True)).bound(np.ones(1), 0.999)
    assert laplace.sf(bound, scale=np.sqrt(0.5)) <= 0.001 < laplace.sf(bound / 1.1, scale=0.7071)


@pytest.mark.parametrize("known", [True, False])
def test_threshold_scanned_from_the_top_covers(known):
    rng = np.random.default_rng(5)
    n, m, runs, std, alpha = 400, 200, 500, 2.0, 0.1
    thresholds = np.arange(1, m + 1) / m
    rows = rng.multinomial(n, np.full(m, 1 / m), size=runs)
    counts = rows + std * rng.standard_normal((runs, m))
    flat, noise = np.eye(m), Noise(std)
    if known:
        each = [SetRelease(thresholds, c[None], flat, noise, n) for c in counts]
        found = np.array([release.found(alpha)[0] for release in each])
    else:
        found = SetRelease(thresholds, counts, flat, noise).found(alpha)
    error = found.std() / np.sqrt(runs)  # of evenly spread scores a threshold is its coverage
    assert 1 - alpha - 3.5 * error <= found.mean() <= 1 - alpha + 0.08


def test_all_sums_have_the_noise_that_the_level_is_for():
    # prefix 1 has less noise than prefix 2, whose law both are to have
    n, std, runs = 10_000, 50.0, 3000
    thresholds, flat = np.array([0.2, 0.6, 1.0]), np.eye(3)
    law, more = Noise(std).of_sums(np.tril(np.ones((3, 3)))[:-1])
    assert more[0] == pytest.approx(std)
    level = marginal_level(n, 0.1, law)
    first = level + np.sqrt(2) * std  # one standard deviation above the level
    rng = np.random.default_rng(2)
    above = 0
    for _ in range(runs):
        counts = np.array([first, n, 0.0]) + std * rng.standard_normal(3)
        release = SetRelease(thresholds, counts[None], flat, Noise(std), n)
        above += release.found(0.1)[0] > thresholds[0]
    assert above / runs == pytest.approx(norm.sf(1.0), abs=0.03)


def test_a_bound_of_the_rows_that_may_fail_is_made_up_for():
    # of 10**6 private rows .9 and a bit would do, were the bound of their number certain
    n, tiny = 1_000_000, Noise(1e-6)
    enough = 0.9 + 0.1 * FAILS
    for share, threshold in ((enough - 2e-5, 1.0), (enough + 2e-5, 0.5)):
        counts = np.array([[share * n, (1 - share) * n]])
        release = SetRelease(np.array([0.5, 1.0]), counts, np.eye(2), tiny)
        assert release.found(0.1) == [threshold]
