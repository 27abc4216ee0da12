"""Tests of sites hold where another parameter is off, see what they say, and bear with buckets."""

import numpy as np
import pytest
from scipy.special import expit

from fedcal.evaluation.sites.effects import edges_of
from fedcal.evaluation.sites.site_tests import (
    Sites,
    calibration,
    changes,
    least_gap,
    ranking,
    spans,
)
from fedcal.mechanisms import NoiseLaw

EDGES, STD = edges_of("positive"), 1.8
RNG = np.random.default_rng(0)
LOG_ODDS = RNG.normal(0, 1.5, 200_000)


def counted(x, y, shape):
    bucket = np.clip(np.searchsorted(EDGES, expit(x), side="right") - 1, 0, 9)
    place = (np.arange(len(x))[:, None] * 2 + y) * 10 + bucket
    found = np.bincount(place.ravel(), minlength=len(x) * 20).reshape(*shape, 2, 10)
    return found + RNG.laplace(0, STD / 2**0.5, found.shape)


def sites(rows, offset=0.0, slope=1.0, mean=0.0, releases=2000):
    x = mean + LOG_ODDS[RNG.integers(0, len(LOG_ODDS), (releases, rows))]
    y = RNG.random(x.shape) < expit(offset + slope * x)
    return Sites.of(counted(x, y, (releases,)), EDGES, STD * np.eye(10), NoiseLaw(True))


def rare(p):
    """Share of p-values of at most .01."""
    return (p <= 0.01).mean()


HONEST = 0.0175  # .01 + 3.4 std, of 2,000
FOUND = 0.9


def test_each_fault_is_told_from_the_other():
    none, off, steep = sites(400), sites(400, offset=1.2), sites(1500, slope=0.35)
    assert max(map(rare, calibration(none))) < HONEST
    joint, gap, slope = map(rare, calibration(off))
    assert min(joint, gap) > FOUND
    assert slope < HONEST
    joint, gap, slope = map(rare, calibration(steep))
    assert min(joint, slope) > FOUND
    assert gap < HONEST  # the mean of 0 is right


@pytest.mark.parametrize(("rows", "rate"), [(100, 0.3), (300, 0.08), (1000, 0.08), (1000, 0.9)])
@pytest.mark.parametrize("spread", [0.5, 1.5, 3.0])  # of outcome 1's scores; outcome 0's: 1.5
def test_scores_that_rank_no_worse_than_chance_are_not_said_to(rows, rate, spread):
    y = (RNG.random((2000, rows)) < rate).astype(int)
    x = -1 + np.where(y, spread, 1.5) * RNG.standard_normal(y.shape)
    counts = counted(x, y, (2000,))
    of = Sites.of(counts, EDGES, STD * np.eye(10), NoiseLaw(True))
    assert rare(ranking(of)[2]) < HONEST


@pytest.mark.parametrize(("rows", "offset"), [(300, 0.0), (600, -2.5)])
def test_swapped_scores_are_said_to_be(rows, offset):
    auc, std, p = ranking(sites(rows, offset, slope=-1.0))
    assert auc.mean() == pytest.approx(0.2, abs=0.03)
    assert (p <= 0.001).mean() > FOUND
    assert ((auc + 1.96 * std < 0.5) == (p < 0.025)).mean() > 0.95


@pytest.mark.parametrize(("offset", "slope"), [(0, 1), (0, 0.35), (1.2, 1)])
def test_a_fault_that_stays_is_no_change_whatever_patients_come(offset, slope):
    before = [sites(n, offset, slope) for n in (300, 2000)]
    after = [sites(n, offset, slope, mean=-1.0) for n in (300, 2000)]
    p, _, turned = changes(*(both(pair) for pair in (before, after)))
    assert max(map(rare, p.T)) < HONEST
    assert turned.mean() == pytest.approx(0.5, abs=0.08)
    moved = both([after[0], sites(2000, offset + 0.8, slope)])
    p = changes(both(before), moved)[0]
    assert rare(p[:, 0]) < HONEST
    assert min(rare(p[:, 1]), rare(p[:, 2])) > FOUND


def both(pair):
    return Sites.of(np.stack([s.counts for s in pair], axis=1), EDGES, pair[0].root, pair[0].law)


@pytest.mark.parametrize(("offset", "slope"), [(0.0, 1.0), (0.5, 0.35), (0.0, -0.5)])
def test_intervals_hold_offset_and_slope(offset, slope):
    of = sites(300, offset, slope, releases=600)
    for which, truth in enumerate((offset, slope)):
        _, low, high = spans(of, which)
        assert 0.92 < ((low <= truth) & (truth <= high)).mean() < 0.985


@pytest.mark.parametrize(("rows", "mean"), [(300, 0.0), (300, -2.5), (3000, 0.0)])
def test_what_a_site_is_said_to_see_is_seen(rows, mean):
    level = 0.0125 / 23
    gap = np.median(least_gap(sites(rows, mean=mean, releases=100), level, 0.8))
    at = np.linspace(0, 3, 301)
    x = mean + LOG_ODDS[:20_000]
    more = np.array([(expit(x + o) - expit(x)).mean() for o in at])
    found = calibration(sites(rows, at[np.searchsorted(more, gap)], mean=mean))
    assert 0.78 < ((found[0] <= level) & (found[1] <= level)).mean() < 0.93


def test_a_site_without_rows_says_nothing():
    empty = Sites.of(np.zeros((1, 2, 10)), EDGES, np.zeros((10, 0)), NoiseLaw())
    assert [float(p[0]) for p in calibration(empty)] == [1.0, 1.0, 1.0]
    assert least_gap(empty, 0.01, 0.8)[0] == np.inf
    assert (changes(empty, sites(300, releases=1))[0] == 1.0).all()
