"""Levels and thresholds: ranks, exact misses of bags, noisy counts."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import laplace, norm

from fedcal.calibrators.conformity import Conformity
from fedcal.clients.questions.conformal import SetGaps
from fedcal.conformal.levels import (
    CountNoise,
    Draw,
    NoiseFree,
    Normal,
    Tabled,
    centred_level,
    covered,
    marginal_level,
    sure_coverage,
)
from fedcal.conformal.page import FAILS, SetRelease
from fedcal.core.numerics import Integers
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.binning import decoder_of

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


@pytest.mark.parametrize(
    ("noise", "alpha"), [(NoiseFree(), 0.1), (Normal(1e-3), 0.17), (Normal(0.3), 0.1)]
)
def test_a_private_number_of_rows_has_the_largest_level_of_all(noise, alpha):
    """Levels go up and down with n: by a whole rank without noise."""
    for fewest in (5, 60):  # n beyond these 200 bring nothing new
        each = [marginal_level(n, alpha, noise) - (1 - alpha) * n for n in range(fewest, 200)]
        assert centred_level(fewest, alpha, noise) == pytest.approx(max(each), abs=1e-5)
    assert centred_level(0.5, alpha, noise) == math.inf


# -- a drawn crossing: misses of bags of rows, each left out in turn, exactly ---------------------

NEED = 0.9


def query(draw: Draw, scale: float, slack: float) -> SetGaps:
    at = Conformity().thresholds(2, draw.candidates)
    return SetGaps(2, at, need=NEED, level=slack + NEED, tilt=draw.tilt * scale)


def missed(asked: SetGaps, cells: Integers, scale: float) -> float:
    """Expected number of rows of a bag that are not covered when they are left out."""
    total = 0.0
    for cell in np.flatnonzero(cells):
        rest = cells.copy()
        rest[cell] -= 1
        costs = asked.costs(np.cumsum(rest) - NEED * rest.sum())
        weights = np.exp((costs.min() - costs) / scale)
        total += cells[cell] * weights[:cell].sum() / weights.sum()
    return total


def bags(rows: int, buckets: int) -> list[Integers]:
    """All bags of so many rows."""
    ends = combinations(range(rows + buckets - 1), buckets - 1)
    return [np.diff([-1, *e, rows + buckets - 1]) - 1 for e in ends]


@pytest.mark.parametrize(
    ("epsilon", "tilt", "rows"), [(2.0, 0.0, 9), (2.0, 0.3, 9), (1.0, 0.3, 13), (8.0, 0.1, 11)]
)
def test_of_every_bag_at_most_a_tenth_is_missed(epsilon, tilt, rows):
    draw, scale = Draw(4, tilt), 2 * NEED / epsilon
    slack = draw.slack(scale)
    assert slack <= 0.1 * rows
    asked = query(draw, scale, slack)
    worst = max(missed(asked, cells, scale) for cells in bags(rows, 4))
    assert worst <= 0.1 * rows + 1e-9


def test_the_slack_is_no_gift():
    # all but the crossing are as many rows short of it as makes them likeliest to be drawn
    draw, scale, rows = Draw(64, 0.0), 2 * NEED, 62
    slack = draw.slack(scale)

    def worst(share: float) -> float:
        asked, found = query(draw, scale, share * slack), 0.0
        for low in range(int(NEED * rows) - 8, rows + 1):
            cells = np.zeros(64, np.int64)
            cells[0], cells[-2] = low, rows - low
            found = max(found, missed(asked, cells, scale))
        return found

    assert worst(1.0) <= 0.1 * rows + 1e-9
    assert worst(0.4) > 0.1 * rows
    for draw in (Draw(32, 0.0), Draw(32, 0.05), Draw(512, 20.0 / 512)):
        likely = np.exp(draw.tilt * np.arange(draw.candidates))
        assert draw.weight == pytest.approx((likely[:-1] / likely[-1]).sum(), rel=1e-9)
    want = 0.04 * math.log1p(Draw(32, 0.05).weight)
    assert Draw(32, 0.05).slack(0.04) == pytest.approx(want)


@pytest.mark.parametrize(("most", "clip"), [(12, 3.0), (6, 2.0), (4, 3.5)])
def test_of_all_rows_that_clients_may_have_the_worst_is_reached(most, clip):
    """All federations of three clients, each row a hit or a miss, whose clipped sum is >= 0."""
    alpha = 0.25
    rows, hits = np.array([(r, h) for r in range(most + 1) for h in range(r + 1)]).T
    gaps = (hits - (1 - alpha) * rows).clip(-clip, clip)
    sums = gaps[:, None, None] + gaps[:, None] + gaps
    there = rows[:, None, None] + rows[:, None] + rows
    covered = (hits[:, None, None] + hits[:, None] + hits)[(sums >= 0) & (there > 0)]
    worst = (covered / there[(sums >= 0) & (there > 0)]).min()
    assert worst >= sure_coverage(clip, most, alpha) - 1e-12
    if most == 12:  # one client that misses all, and one that hits all: the sum is 3 - 3
        assert worst == sure_coverage(clip, most, alpha) == 0.5
    if clip == 3.5:  # no client can miss more than 3
        assert sure_coverage(clip, most, alpha) == 1 - alpha
    assert sure_coverage(clip, math.inf, alpha) == 0.0


# -- noisy counts: the law of sums of noise, and thresholds scanned from the top ------------------


@pytest.mark.parametrize(
    ("encoding", "height", "draws"), [("flat", 1, 1.0), ("tree", 3, 3.5), ("prefix", 1, 100.0)]
)
def test_tabled_laws_are_those_of_sums(encoding, height, draws):
    weights = np.cumsum(decoder_of(encoding, 16, height), axis=0)[:-1]
    noise, more = CountNoise(2.0, NoiseDistribution(True, draws)).of_sums(weights)
    rng = np.random.default_rng(3)
    runs, scale = 40_000, 2.0 / np.sqrt(2 * draws)
    gammas = rng.gamma(draws, scale, (2, runs, weights.shape[1]))
    sums = (gammas[0] - gammas[1]) @ weights.T + more * rng.standard_normal((runs, len(weights)))
    std = np.linalg.norm(weights, axis=1).max() * 2.0
    assert sums.std(axis=0) == pytest.approx(std, rel=0.03)
    at = np.linspace(-4 * std, 4 * std, 41)
    seen = np.stack([np.mean(column[:, None] < at, axis=0) for column in sums.T])
    tabled = noise.below(at)
    assert (tabled <= seen.min(axis=0) + 5 * 0.5 / np.sqrt(runs)).all()  # never more than there is
    assert (tabled >= seen.min(axis=0) - 0.015).all()  # a step of the table, and chance


def test_one_laplace_distribution_is_tabled_from_below():
    noise, _ = CountNoise(1.0, NoiseDistribution(True)).of_sums(np.eye(1))
    assert isinstance(noise, Tabled)
    x = np.linspace(-9, 9, 3001)
    exact = laplace.cdf(x, scale=np.sqrt(0.5))
    assert (noise.below(x) <= exact).all()
    assert (noise.below(x) >= exact - 0.02).all()
    bound = CountNoise(1.0, NoiseDistribution(True)).bound(np.ones(1), 0.999)
    assert laplace.sf(bound, scale=np.sqrt(0.5)) <= 0.001 < laplace.sf(bound / 1.1, scale=0.7071)


def test_threshold_scanned_from_the_top_covers():
    rng = np.random.default_rng(5)
    n, m, runs, alpha = 400, 200, 400, 0.1
    thresholds, noise = np.arange(1, m + 1) / m, CountNoise(2.0)
    rows = rng.multinomial(n, np.full(m, 1 / m), size=runs)
    counts = rows + 2.0 * rng.standard_normal((runs, m))
    release = SetRelease(thresholds, counts, np.eye(m), noise)
    found = release.found(alpha)
    error = found.std() / np.sqrt(runs)  # of evenly spread scores a threshold is its coverage
    assert 1 - alpha - 3.5 * error <= found.mean() <= 1 - alpha + 0.08


def test_all_sums_have_the_noise_that_the_level_is_for():
    # less 90 % of all rows the second sum has less noise than the first, whose law both are to have
    n, std, runs, alpha = 10_000, 50.0, 3000, 0.1 * (1 - FAILS)
    thresholds, flat = np.array([0.2, 0.6, 1.0]), np.eye(3)
    weights = np.tril(np.ones((3, 3)))[:-1] - (1 - alpha)
    noise, more = CountNoise(std).of_sums(weights)
    of_all = std * float(np.linalg.norm(weights[0]))
    assert more[1] == pytest.approx(np.sqrt(0.8) * std, rel=0.001)
    second = (1 - alpha) * n + centred_level(n, alpha, noise) + of_all  # one std above the level
    rng = np.random.default_rng(2)
    counts = np.array([second, 0.0, n - second]) + std * rng.standard_normal((runs, 3))
    release = SetRelease(thresholds, counts, flat, CountNoise(std))
    assert (release.found(0.1) > 0.6).mean() == pytest.approx(norm.sf(1.0), abs=0.03)


def test_a_bound_of_the_rows_that_may_fail_is_made_up_for():
    # of 10**6 private rows .9 and a bit would do, were the bound of their number certain
    n, tiny = 1_000_000, CountNoise(1e-6)
    enough = 0.9 + 0.1 * FAILS
    for share, threshold in ((enough - 2e-5, 1.0), (enough + 2e-5, 0.5)):
        counts = np.array([[share * n, (1 - share) * n]])
        release = SetRelease(np.array([0.5, 1.0]), counts, np.eye(2), tiny)
        assert release.found(0.1) == [threshold]
