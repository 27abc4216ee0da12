"""Tests of sites keep their level where another parameter is off; verdicts name what is wrong."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.numerics import Floats
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.buckets import edges_of
from fedcal.evaluation.sites.site_tests import (
    Sites,
    SumDistribution,
    calibration,
    changes,
    least_gap,
    p_value,
    ranking,
    spans,
)
from fedcal.evaluation.sites.verdicts import ALL, _slope_changes, detectable, verdicts_of
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.bootstrap import holm
from fedcal.metrics.score_table import names_text

EDGES, STD = edges_of("positive"), 1.8
RNG = np.random.default_rng(0)
LOG_ODDS = RNG.normal(0, 1.5, 200_000)
RELEASES = 1000
HONEST = 0.0207  # .01 + 3.4 std, of 1,000
FOUND = 0.9


def counted(x, y):
    bucket = np.clip(np.searchsorted(EDGES, expit(x), side="right") - 1, 0, 9)
    place = (np.arange(len(x))[:, None] * 2 + y) * 10 + bucket
    counts = np.bincount(place.ravel(), minlength=len(x) * 20).reshape(-1, 2, 10)
    noise = RNG.laplace(0, STD / 2**0.5, counts.shape)
    return Sites.of(counts + noise, EDGES, STD * np.eye(10), NoiseDistribution(True))


def sites(rows, offset=0.0, slope=1.0, mean=0.0, releases=RELEASES):
    x = mean + LOG_ODDS[RNG.integers(0, len(LOG_ODDS), (releases, rows))]
    return counted(x, RNG.random(x.shape) < expit(offset + slope * x))


def rare(p):
    """Share of p-values of at most .01."""
    return (p <= 0.01).mean()


def test_each_fault_is_distinguished_from_the_other():
    none, off, steep = sites(400), sites(400, offset=1.2), sites(1500, slope=0.35)
    assert max(map(rare, calibration(none))) < HONEST
    joint, gap, slope = map(rare, calibration(off))
    assert min(joint, gap) > FOUND
    assert slope < HONEST
    joint, gap, slope = map(rare, calibration(steep))
    assert min(joint, slope) > FOUND
    assert gap < HONEST  # the mean of 0 is right


@pytest.mark.parametrize(
    ("rows", "rate", "spread"),  # of outcome 1's scores; outcome 0's: 1.5
    [(100, 0.3, 0.5), (300, 0.08, 0.5), (300, 0.08, 3.0), (1000, 0.08, 3.0), (1000, 0.9, 1.5)],
)
def test_scores_that_rank_no_worse_than_chance_are_not_reported_to(rows, rate, spread):
    y = (RNG.random((RELEASES, rows)) < rate).astype(int)
    x = -1 + np.where(y, spread, 1.5) * RNG.standard_normal(y.shape)
    assert rare(ranking(counted(x, y))[2]) < HONEST


@pytest.mark.parametrize(("rows", "offset"), [(300, 0.0), (600, -2.5)])
def test_swapped_scores_are_reported_to_be(rows, offset):
    auc, std, p = ranking(sites(rows, offset, slope=-1.0))
    assert auc.mean() == pytest.approx(0.2, abs=0.03)
    assert (p <= 0.001).mean() > FOUND
    assert ((auc + 1.96 * std < 0.5) == (p < 0.025)).mean() > 0.95


@pytest.mark.parametrize(("offset", "slope"), [(0, 0.35), (1.2, 1)])
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


ENDS = (0.4, 0.2, 0.7), (1.1, 0.6, 1.9)


def test_a_change_of_slopes_back_is_the_same_change_with_the_other_sign():
    one, two = (tuple(np.array(ends)[:, None]) for ends in ENDS)
    (forth,), (back,) = _slope_changes(one, two), _slope_changes(two, one)
    assert forth["value"] == pytest.approx(0.7)
    for end, other in (("value", "value"), ("low", "high"), ("high", "low")):
        assert forth[end] == pytest.approx(-back[other])
    assert forth["low"] < forth["value"] < forth["high"]


def both(pair):
    return Sites.of(
        np.stack([s.counts for s in pair], axis=1), EDGES, pair[0].root, pair[0].distribution
    )


@pytest.mark.parametrize(("offset", "slope"), [(0.5, 0.35), (0.0, -0.5)])
def test_intervals_hold_offset_and_slope(offset, slope):
    of = sites(300, offset, slope, releases=150)
    for which, truth in enumerate((offset, slope)):
        _, low, high = spans(of, which)
        assert 0.9 < ((low <= truth) & (truth <= high)).mean() < 0.995


@pytest.mark.parametrize(("rows", "mean"), [(300, -2.5), (1000, 0.0)])
def test_what_a_site_is_reported_to_see_is_seen(rows, mean):
    level = 0.0125 / 23
    gap = np.median(least_gap(sites(rows, mean=mean, releases=100), level, 0.8))
    at = np.linspace(0, 3, 301)
    x = mean + LOG_ODDS[:20_000]
    more = np.array([(expit(x + o) - expit(x)).mean() for o in at])
    found = calibration(sites(rows, at[np.searchsorted(more, gap)], mean=mean))
    assert 0.76 < ((found[0] <= level) & (found[1] <= level)).mean() < 0.94


# -- p-values of noisy sums, where families of tests look: at 1 in 400 and beyond -----------------

WAYS = np.stack([np.ones(6), np.linspace(-3, 3, 6)])
SHARE = 1 / (1 + np.exp(3.5 - WAYS[1] / 3))  # rare outcomes: sums are skewed


def null(rows, noise, most=1.0, d=2):
    each = np.full(6, float(rows))
    return SumDistribution(each, SHARE, WAYS[:d], noise * WAYS[:d], np.zeros((d, d)), most)


def too_often(of, chance, limit, draws=20_000, p_of=None):
    """Share of small p-values; and how many std their number is above what there should be."""
    rng = np.random.default_rng(0)
    subjects = (of.rows / of.most).astype(int)  # whose rows have one outcome
    rows = of.most * rng.binomial(subjects, of.share, (draws, 6)) - of.rows * of.share
    sums = rows @ of.weights.T + rng.laplace(0, 0.5**0.5, (draws, 6)) @ of.noise.T
    hits = p_value(p_of or of, sums) <= limit
    return hits.mean(), (hits.sum() - chance * draws) / (chance * draws) ** 0.5


@pytest.mark.parametrize(
    ("rows", "noise", "d"),
    [(50, 0.0, 1), (50, 0.0, 2), (50, 2.5, 2), (0, 1.0, 1), (0, 1.0, 2), (3000, 1.0, 2)],
)
def test_tails_are_honest_and_not_wasteful(rows, noise, d):
    for chance in (0.05, 0.0025):
        limit = (1.25 if rows == 50 and not noise else 1.1) * chance
        share, above = too_often(null(rows, noise, d=d), 1.5 * chance, limit)
        assert above < 3
        assert share > 0.6 * chance


def test_rows_of_one_subject_may_be_alike():
    alike = null(600, 1.0, 4.0)
    assert too_often(alike, 0.015, 0.01)[1] < 3
    assert too_often(alike, 0.015, 0.01, p_of=null(600, 1.0))[0] > 0.1


def test_nothing_known_is_nothing_rare():
    assert p_value(null(0, 0.0), np.zeros(2)) == 1.0
    assert p_value(null(50, 1.0), np.array([300.0, 900.0])) < 1e-30


# -- verdicts -------------------------------------------------------------------------------------

CUT = {"positive": 0.0, "confidence": 1.5}


def release(sites: dict[str, tuple[int, float, float]], score="positive", std=STD):
    """A release of name -> rows, offset, slope."""
    classes = 2 if score == "positive" else 5
    edges, names = edges_of(score), names_text(list(sites))
    asked = ScoreCounts(classes, edges, score, groups=names, by="site", subject_rows=1)
    counts = []
    for rows, offset, slope in sites.values():
        x = CUT[score] + 1.4 * RNG.standard_normal(rows)
        x = np.maximum(x, -np.log(classes - 1)) if score == "confidence" else x
        y = RNG.random(rows) < expit(offset + slope * x)
        bucket = np.clip(np.searchsorted(edges, expit(x), side="right") - 1, 0, 9)
        counts.append(np.bincount(10 * y + bucket, minlength=20))
    noise: Floats | float = RNG.laplace(0, std / 2**0.5, asked.counts) if std else 0.0
    return ScoreRelease(asked, np.concatenate(counts) + noise, std, NoiseDistribution(std > 0))


def verdict(of: ScoreRelease, level=0.01, site="a") -> dict[str, Any]:
    found: dict[str, Any] = verdicts_of(of, {}, level=level)["sites"][site]
    return found


def test_both_parts_are_named_and_a_joint_fault_has_a_name():
    found = verdict(release({"a": (3000, 1.2, 0.35)}))
    assert found["named"] == ["gap", "slope"]
    assert " points too low, and too extreme (slope 0." in found["words"]
    small = {f"s{k}": (300, 0.45, 0.75) for k in range(100)}
    each = verdicts_of(release(small), {}, level=0.99)["sites"].values()
    assert {"not calibrated"} == {v["words"] for v in each if v["named"] == ["joint"]}


@pytest.mark.parametrize("score", ["positive", "confidence"])
def test_scores_that_run_against_outcomes_are_a_verdict_of_their_own(score):
    """AUC .2; a slope that is below 0 by chance is none."""
    of = release({"a": (600, 0.0, -1.1), "b": (600, 0.0, 0.0)}, score)
    found = verdicts_of(of, {}, level=0.0125)
    swapped, flat = found["sites"]["a"], found["sites"]["b"]
    assert swapped["named"] == ["order"]
    auc = swapped["auc"]
    assert auc["low"] < auc["value"] < auc["high"] < 0.5
    assert re.fullmatch(
        rf".* \(AUC {auc['value']:.2f}; are labels or classes swapped\?\)", swapped["words"]
    )
    assert "order" not in flat["named"]
    assert found["tests"] == 4


def test_changes_are_in_the_same_family():
    quarter = {"low": (3000, 1.4, 1.0), "steep": (3000, 0.0, 0.35), "fine": (3000, 0.0, 1.0)}
    before = release(quarter)
    after = release(quarter | {"fine": (3000, 0.9, 1.0), "new": (1000, 0.0, 1.0)})
    found = verdicts_of(after, {"2026Q4": before}, level=0.0125)
    since = found["changes"]["2026Q4"]
    assert set(since) == {*quarter, ALL}
    assert found["tests"] == 2 * 4 + 4
    assert since["steep"]["words"] == "no change since 2026Q4 found"
    every = {("", n): v for n, v in found["sites"].items()}
    every |= {("c", n): c for n, c in since.items()}
    others = dict.fromkeys(range(4), 1.0)  # that no site's scores run against its outcomes
    adjusted = holm({k: v["p_value"] for k, v in every.items()} | others)
    assert {k: v["adjusted"] for k, v in every.items()} == {k: adjusted[k] for k in every}
    assert all(bool(v["named"]) == (v["adjusted"] <= 0.0125) for v in every.values())


@pytest.mark.parametrize(
    ("score", "std", "rows"),
    [
        ("positive", 0.0, 1),
        ("confidence", STD, 0),
        ("positive", STD, 10**6),
        ("confidence", 0.0, 10**6),
        ("confidence", 1e6, 10**6),
    ],
)
def test_any_release_has_verdicts(score, std, rows):
    of = {"a": (0, 0.0, 1.0), "b": (rows, 0.0, 1.0)}
    found = verdicts_of(release(of, score, std), {"q": release(of, score, std)}, level=0.01)
    json.dumps(found, allow_nan=False)
    assert found["sites"]["a"]["words"] == "cannot tell: noise hides any fault"
    assert not found["sites"]["b"]["named"]
    if rows == 10**6 and std < 1e6:
        assert found["sites"]["b"]["words"] == "no fault above 2 points found"


def test_what_is_detectable_before_anything_ran():
    facts = {"edges": EDGES, "std": STD, "tests": 23, "level": 0.0125}
    gaps = [detectable(n, **facts) for n in (10, 300, 1000, 3000)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] == 1.0
    assert 0.13 < gaps[1] < 0.18
    assert detectable(300, rate=0.1, **facts) < gaps[1]
    assert detectable(300, **facts | {"tests": 5}) < gaps[1]


def test_rows_of_a_subject_may_all_be_alike():
    """Four to a subject: sampling errors double, and what buckets misread stays as it is."""
    one = release({"a": (1000, 0.0, 1.0)}, std=0.0)
    four = replace(one, question=replace(one.question, subject_rows=4))
    narrow, wide = (gap["high"] - gap["low"] for gap in (verdict(of)["gap"] for of in (one, four)))
    assert 1.9 * narrow < wide < 2 * narrow
