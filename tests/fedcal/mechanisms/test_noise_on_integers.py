"""Laplace noise on integers: where it is drawn, its distribution, guarantee and intervals."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from laws import drawn_from, probabilities

from experiments.studies.rows import draw_sum
from fedcal.clients.questions.conformal import SetCounts
from fedcal.clients.questions.histograms import BinOutcomes, ClassHistograms, PooledHistograms
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.checks import PrivacyError
from fedcal.mechanisms import Laplace, NoiseDistribution
from fedcal.privacy.curator import Curator
from fedcal.privacy.making import make_plan
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.privacy.query import Query
from fedcal.units import Bound, encode_bounded

DRAWS = 20_000
every_case = pytest.mark.parametrize(("epsilon", "norm"), [(1.0, 2.0), (3.0, 1.0), (8.0, 2.0)])


def bound_of(norm: float, length: int = 2) -> Bound:
    return Bound((length,), (norm,), "joint", 1, "row", whole=True)


def plan_of(bound: Bound, epsilon: float, trust: str = "central", **more: Any) -> Plan:
    federation = Federation(10, 3, epsilon=epsilon, unit="example", trust=trust, **more)
    return make_plan(federation, rounds=1, bound=bound, prefers=(Laplace,), row_sums=True)


def chances(epsilon: float, norm: float, draws: float = 1.0, far: int = 400) -> np.ndarray:
    """P(k) of k = -far ... far, of a sum of complete draws, from the definition by convolution."""
    total = one = probabilities("laplace", norm / epsilon, np.arange(-far, far + 1))
    for _ in range(round(draws) - 1):
        total = np.convolve(total, one, "same")
    return total


def std_of(epsilon: float, norm: float, draws: float = 1.0) -> float:
    """The closed form of the std of complete draws."""
    q = math.exp(-epsilon / norm)
    return math.sqrt(2 * q * draws) / (1 - q)


@every_case
def test_neighbours_likelihood_ratio_is_at_most_e_to_the_epsilon(epsilon, norm):
    """Try two numbers, over all integers in reach, for every change of at most the norm."""
    plan = plan_of(bound_of(norm), epsilon)
    assert (plan.grid, plan.on_integers) == (1.0, True)
    assert plan.noise_std == (pytest.approx(std_of(epsilon, norm), rel=1e-12),)
    scale = plan.noise.scales[0]
    k = np.arange(-60, 61)
    worst = 0.0
    for a, b in itertools.product(range(-2, 3), repeat=2):
        if abs(a) + abs(b) <= norm:
            first, second = ((np.abs(k - c) - np.abs(k)) / scale for c in (a, b))
            worst = max(worst, float((first[:, None] + second).max()))
    assert worst == pytest.approx(epsilon, rel=1e-12)
    assert worst <= epsilon * (1 + 1e-15)


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_in_one_draw_for_studies_it_has_the_same_distribution(trust):
    plan = plan_of(bound_of(2.0, DRAWS), 3.0, trust)
    of = plan.sum_of(plan.bound, 9)
    total = draw_sum(plan, np.zeros(DRAWS, np.uint64), of, np.random.default_rng(1))
    complete = 9 if trust == "local" else 1
    assert plan.noise_copies(9) == complete
    assert drawn_from(total.view(np.int64), chances(3.0, 2.0, complete))
    assert not drawn_from(total.view(np.int64), chances(2.0, 2.0, complete))


EDGES = {"classes": 3, "edges": np.array([4.0])}
SETS = {"classes": 3, "thresholds": np.array([0.25, 0.5, 1.0])}
INTEGER: list[tuple[Query, str, float]] = [
    (BinOutcomes(5, "correct_total"), "row", 1.0),
    (ClassHistograms(4, 3), "row", 3.0),
    (PooledHistograms(4, 2), "row", 1.0),
    (ScoreCounts(**EDGES, encoding="tree", height=2), "row", 2.0),
    (ScoreCounts(**EDGES, gain=2.0), "row", 2.0),
    (SetCounts(**SETS, once=True), "subject", 1.0),
]
FINE: list[tuple[Query, str]] = [
    (ScoreCounts(**EDGES, gain=0.5), "row"),
    (ScoreCounts(**EDGES, reference=np.full(8, 0.125)), "row"),
    (PooledHistograms(4, 3), "row"),
    (SetCounts(**SETS), "subject"),
]


def test_only_counts_of_parts_of_clients_have_their_noise_on_integers():
    for query, part, norm in INTEGER:
        bound = query.bound(part, (), 1)
        assert (bound.whole, set(bound.norms)) == (True, {norm}), query.kind
        assert not query.bound(part, (), 2).whole
    for query, part in FINE:
        assert not query.bound(part, (), 1).whole, query.kind
    assert not BinOutcomes(5, "correct_wrong").bound("client", (4.0,), 1).whole


def test_scales_too_small_for_shares_go_to_the_fine_grid():
    assert plan_of(bound_of(1.0), 20.0).grid == 1.0
    fine = plan_of(bound_of(1.0), 20.1)
    assert fine.grid < 1e-5
    assert fine.noise_std == (pytest.approx(math.sqrt(2) / 20.1, rel=1e-6),)
    assert fine.noise_distribution(fine.noise_std[0]) == NoiseDistribution(True)


def test_a_question_of_fractions_is_not_asked_under_a_plan_on_integers():
    counts, half = ScoreCounts(**EDGES), ScoreCounts(**EDGES, gain=0.5)
    curator = Curator(plan_of(counts.bound("row", (), 1), 1.0))
    with pytest.raises(PrivacyError, match="adds fractions"):
        curator.open(1, half)


def test_addends_at_the_bound_keep_every_bit_and_no_addend_exceeds_it():
    bound = bound_of(2.0, 3)
    ring = plan_of(bound, 1.0).ring
    rows = np.array([[1, 1, 0], [0, -2, 0], [2, 2, 0], [1, 1, 1], [0.9, 0, 0], [np.nan, 1e300, 7]])
    sent = encode_bounded(rows, bound, ring).view(np.int64)
    np.testing.assert_array_equal(sent[:3], [[1, 1, 0], [0, -2, 0], [1, 1, 0]])
    assert np.abs(sent).sum(axis=1).max() <= 2
    random = np.random.default_rng(1).integers(-9, 10, (2000, 3)).astype(float)
    sent = encode_bounded(random, bound, ring).view(np.int64)
    inside = np.abs(random).sum(axis=1) <= 2
    np.testing.assert_array_equal(sent[inside], random[inside])
    assert np.abs(sent).sum(axis=1).max() == 2


# --- what is read from it -----------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("draws", [1, 3])
def test_quantiles_are_those_of_the_distribution(epsilon, norm, draws):
    distribution, std = chances(epsilon, norm, draws), std_of(epsilon, norm, draws)
    named = NoiseDistribution(True, draws, 1 / std)
    k = np.abs(np.arange(len(distribution)) - len(distribution) // 2)
    for level in (0.5, 0.9, 0.95, 0.99):
        reach = round(named.quantile(level) * std)
        assert distribution[k <= reach].sum() >= level - 1e-9
        assert reach == 0 or distribution[k <= reach - 1].sum() < level


@every_case
@pytest.mark.parametrize("number", [1, 20])
def test_intervals_of_weighted_sums_of_few_counts_cover(epsilon, norm, number):
    """Noise is all that makes sums of these counts uncertain; their steps differ."""
    named = NoiseDistribution(True, 1.0, 1 / std_of(epsilon, norm))
    weights = np.tile((1.0, 0.37), number)
    sums = named.sample(np.random.default_rng(3), (400, len(weights))) @ weights
    most = 1.96 * named.widening(weights, 0.95) * np.linalg.norm(weights)
    assert (np.abs(sums) <= most + 1e-9).mean() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 400)


@every_case
def test_moments_waves_and_samples_are_of_one_distribution(epsilon, norm):
    distribution, std = chances(epsilon, norm, 2), std_of(epsilon, norm, 2)
    k, named = (
        np.arange(len(distribution)) - len(distribution) // 2,
        NoiseDistribution(True, 2.0, 1 / std),
    )
    assert named.limit / std == pytest.approx(epsilon / norm, rel=1e-9)
    fine = NoiseDistribution(True, 2.0, 1e-6)  # nearly the Laplace distribution
    assert NoiseDistribution(True, 2.0, 0.0).limit == pytest.approx(fine.limit)
    t = np.array([-0.3, 0.1, 0.5]) * named.limit
    near = np.abs(k) < 120
    moments = np.exp(np.outer(t / std, k[near])) @ distribution[near]
    np.testing.assert_allclose(named.log_moments(t)[0], np.log(moments), atol=1e-9)
    step = 1e-5
    up, down = named.log_moments(t + step), named.log_moments(t - step)
    for order in (0, 1):
        slope = (up[order] - down[order]) / (2 * step)
        np.testing.assert_allclose(named.log_moments(t)[order + 1], slope, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(
        np.exp(named.log_waves(t)), np.cos(np.outer(t / std, k)) @ distribution, atol=1e-9
    )
    drawn = np.rint(named.sample(np.random.default_rng(2), (DRAWS,)) * std).astype(int)
    assert drawn_from(drawn, distribution)
