"""Levels and thresholds: ranks, exact misses of bags, noisy counts, the paper's formulas."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import laplace, norm

from fedcal.calibrators.conformity import Conformity
from fedcal.clients.questions.conformal import SetGaps
from fedcal.conformal import levels as paper
from fedcal.conformal.levels import (
    CountNoise,
    Draw,
    Normal,
    centred_level,
    covered,
    marginal_level,
    sure_coverage,
)
from fedcal.conformal.page import FAILS, SetRelease
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers
from fedcal.core.scores import rows_by_owner
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.score_table import decoder_of
from fedcal.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.conformal import FedConformal

ALPHAS = (0.01, 0.05, 0.1, 0.3)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_without_noise_they_are_the_ranks_of_split_conformal_prediction(alpha):
    for n in (3, 9, 19, 20, 50, 99, 100, 1000, 12_345):
        level = marginal_level(n, alpha, Normal())
        assert math.ceil(level) == math.ceil((n + 1) * (1 - alpha) - 1e-9)  # above a whole number


@pytest.mark.parametrize(("n", "std"), [(30, 0.4), (30, 6.0), (800, 12.0), (800, 300.0)])
def test_coverage_is_that_of_simulated_ranks(n, std):
    rng = np.random.default_rng(1)
    level, draws = 0.93 * n, 400_000
    noisy = level - std * rng.standard_normal(draws)
    mean = np.clip(np.ceil(noisy), 0, n + 1).mean() / (n + 1)
    assert covered(n, level, Normal(std)) == pytest.approx(mean, abs=2e-3)


@pytest.mark.parametrize(
    ("noise", "alpha"), [(Normal(), 0.1), (Normal(1e-3), 0.17), (Normal(0.3), 0.1)]
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
    assert (noise.below(noise.points) == noise.values).all()  # not those of a step before
    bound = CountNoise(1.0, NoiseDistribution(True)).bound(np.ones(1), 0.999)
    assert laplace.sf(bound, scale=np.sqrt(0.5)) <= 0.001 < laplace.sf(bound / 1.1, scale=0.7071)


@pytest.mark.parametrize("known", [True, False])
def test_threshold_scanned_from_the_top_covers(known):
    rng = np.random.default_rng(5)
    n, m, runs, alpha = 400, 200, 400, 0.1
    thresholds, noise = np.arange(1, m + 1) / m, CountNoise(2.0)
    rows = rng.multinomial(n, np.full(m, 1 / m), size=runs)
    counts = rows + 2.0 * rng.standard_normal((runs, m))
    release = SetRelease(thresholds, counts, np.eye(m), noise, n if known else None)
    found = release.found(alpha)
    error = found.std() / np.sqrt(runs)  # of evenly spread scores a threshold is its coverage
    assert 1 - alpha - 3.5 * error <= found.mean() <= 1 - alpha + 0.08


def test_all_sums_have_the_noise_that_the_level_is_for():
    # prefix 1 has less noise than prefix 2, whose law both are to have
    n, std, runs = 10_000, 50.0, 3000
    thresholds, flat = np.array([0.2, 0.6, 1.0]), np.eye(3)
    noise, more = CountNoise(std).of_sums(np.tril(np.ones((3, 3)))[:-1])
    assert more[0] == pytest.approx(std)
    first = marginal_level(n, 0.1, noise) + np.sqrt(2) * std  # one standard deviation above it
    rng = np.random.default_rng(2)
    counts = np.array([first, n, 0.0]) + std * rng.standard_normal((runs, 3))
    release = SetRelease(thresholds, counts, flat, CountNoise(std), n)
    assert (release.found(0.1) > 0.2).mean() == pytest.approx(norm.sf(1.0), abs=0.03)


def test_a_bound_of_the_rows_that_may_fail_is_made_up_for():
    # of 10**6 private rows .9 and a bit would do, were the bound of their number certain
    n, tiny = 1_000_000, CountNoise(1e-6)
    enough = 0.9 + 0.1 * FAILS
    for share, threshold in ((enough - 2e-5, 1.0), (enough + 2e-5, 0.5)):
        counts = np.array([[share * n, (1 - share) * n]])
        release = SetRelease(np.array([0.5, 1.0]), counts, np.eye(2), tiny)
        assert release.found(0.1) == [threshold]


# -- Angelopoulos et al.: its formulas, what it spends, and what it covers ------------------------


def test_level_is_equation_3_by_hand():
    level = paper.inflated_level(1000, 200, 1.0, 0.1, 0.02)
    assert level == pytest.approx(1001 * 0.9 / (1000 * 0.998) + 0.002 * math.log(100_000))
    with pytest.raises(InputError, match=r"gamma must be in"):
        paper.inflated_level(1000, 200, 1.0, 0.1, 1.0)


@pytest.mark.parametrize(("n", "epsilon"), [(30, 0.5), (1000, 1.0), (100_000, 8.0)])
def test_no_gamma_has_a_lower_level(n, epsilon):
    best, *others = (
        paper.inflated_level(n, 200, epsilon, 0.1, gamma)
        for gamma in (paper.best_gamma(n, 200, epsilon, 0.1), *np.geomspace(1e-6, 0.999, 300))
    )
    assert min(best, 1.0) <= min(others)  # from 1 on, the sets hold all labels


def log_probabilities(counts: Integers, q: float, epsilon: float) -> Floats:
    logs = -0.5 * epsilon * paper.quantile_costs(counts, q)
    return np.asarray(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True))


def test_what_a_draw_spends():
    """On all counts of 4 bins with up to 4 rows in each."""
    epsilon, q, units = 1.0, 0.9, np.eye(4, dtype=np.int64)
    every = np.array(list(product(range(5), repeat=4)))
    before = log_probabilities(every, q, epsilon)
    more = np.stack([log_probabilities(every + unit, q, epsilon) for unit in units])
    assert np.abs(more - before).max() <= epsilon / 2 + 1e-12  # a row is added
    assert np.abs(more[:, None] - more).max() <= epsilon + 1e-12  # a row is replaced


def drawn_thresholds(scores: Floats, m: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """Thresholds of (k, n) scores, (k,)."""
    n = scores.shape[1]
    level = paper.inflated_level(n, m, epsilon, 0.1, paper.best_gamma(n, m, epsilon, 0.1))
    if level >= 1:
        return np.ones(len(scores))
    cells = paper.binned(scores, m) + m * np.arange(len(scores))[:, None]
    counts = np.bincount(cells.ravel(), minlength=m * len(scores)).reshape(-1, m)
    return np.asarray(paper.thresholds(m)[paper.private_quantile(counts, level, epsilon, rng)])


MASSES = {"two masses": (0.85, 0.98), "edges": (0.5, 0.89, 0.9, 0.91)}


@pytest.mark.parametrize(
    ("scores_of", "n", "epsilon"),
    [("uniform", 50, 1.0), ("two masses", 300, 1.0), ("edges", 1000, 1.0), ("edges", 1000, 8.0)],
)
def test_it_covers(scores_of, n, epsilon):
    rng = np.random.default_rng(1)
    values = np.array(MASSES.get(scores_of, ()))
    scores = rng.random((1000, n)) if scores_of == "uniform" else rng.choice(values, (1000, n))
    t = drawn_thresholds(scores, paper.best_bins(n, epsilon, 0.1), epsilon, rng)
    covered = t if scores_of == "uniform" else (values <= t[:, None]).mean(axis=1)
    assert covered.mean() >= 0.9 - 3.5 * covered.std() / math.sqrt(len(covered))


def test_where_all_labels_are_needed_sets_hold_them():
    """The paper goes on at the level 1, where draws cover .58 to .82 of uniform scores."""
    rows = rows_by_owner(np.ones((1000, 2)), np.zeros(1000, int), np.arange(1000) // 50, 20)
    for epsilon in (0.01, 8.0):
        facts = Federation(20, 2, epsilon=epsilon, unit="example", trust="central")
        method = FedConformal(facts, quantile="exponential", rows_known=True, rows_per_client=50.0)
        run_inline(method, rows)
        assert (method.result().thresholds[0] == 1.0) == (epsilon == 0.01)


def test_the_number_of_bins_is_one_of_the_better():
    """By the mean threshold of uniform scores, which is lower the fewer labels sets hold."""
    rng, n = np.random.default_rng(2), 20_000  # with fewer rows one draw hardly tells
    scores = rng.random((30, n))

    def mean(m: int) -> float:
        return float(drawn_thresholds(scores, m, 1.0, rng).mean())

    found = [mean(m) for m in paper.CANDIDATES.tolist()[::8] if m <= paper.MOST * n]
    assert mean(paper.best_bins(n, 1.0, 0.1)) <= (min(found) + max(found)) / 2
