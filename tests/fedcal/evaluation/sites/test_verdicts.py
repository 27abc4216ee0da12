"""Verdicts say what is wrong in words that a reader acts on, as one family, of any release."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from fedcal.clients.questions.scores import ScoreCounts
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.effects import edges_of
from fedcal.evaluation.sites.verdicts import (
    ALL,
    detectable,
    verdicts_of,
)
from fedcal.mechanisms import NoiseLaw
from fedcal.metrics.binning import names_text
from fedcal.metrics.bootstrap import holm

RNG = np.random.default_rng(0)
CUT = {"positive": 0.0, "confidence": 1.5}


def release(sites, score="positive", std=1.8, **more):
    """Of name -> rows, offset, slope."""
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
    noise = RNG.laplace(0, std / 2**0.5, asked.counts) if std else 0.0
    law = NoiseLaw(std > 0)
    return ScoreRelease(asked, np.concatenate(counts) + noise, std, law, **more)


SITES = {
    **{"low": (3000, 1.4, 1.0), "high": (3000, -1.4, 1.0), "steep": (3000, 0.0, 0.35)},
    **{"flat": (3000, 0.0, 2.5), "fine": (3000, 0.0, 1.0), "small": (100, 0.0, 1.0)},
}


def test_both_parts_are_named_and_a_joint_fault_has_a_name():
    found = verdicts_of(release({"a": (3000, 1.2, 0.35)}), {}, level=0.01)["sites"]["a"]
    assert found["named"] == ["gap", "slope"]
    assert " points too low, and too extreme (slope 0." in found["words"]
    small = {f"s{k}": (300, 0.45, 0.75) for k in range(200)}
    each = verdicts_of(release(small), {}, level=0.99)["sites"].values()
    assert {"not calibrated"} == {v["words"] for v in each if v["named"] == ["joint"]}


@pytest.mark.parametrize("score", ["positive", "confidence"])
def test_scores_that_run_against_outcomes_are_a_verdict_of_their_own(score):
    """AUC .2; a slope that is below 0 by chance is none."""
    found = verdicts_of(
        release({"a": (600, 0.0, -1.1), "b": (600, 0.0, 0.0)}, score), {}, level=0.0125
    )
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
    before = release(SITES)
    after = release(SITES | {"fine": (3000, 0.9, 1.0), "new": (1000, 0.0, 1.0)})
    found = verdicts_of(after, {"2026Q4": before}, level=0.0125)
    since = found["changes"]["2026Q4"]
    assert set(since) == {*SITES, ALL}
    assert found["tests"] == 2 * 7 + 7
    points = round(100 * abs(since["fine"]["gap_change"]["value"]))
    assert since["fine"]["words"] == (
        f"changed since 2026Q4: predicts {points} points lower relative to outcomes than before"
    )
    assert since["steep"]["words"] == "no change since 2026Q4 found"
    every = {("", n): v for n, v in found["sites"].items()}
    every |= {("c", n): c for n, c in since.items()}
    others = dict.fromkeys(range(7), 1.0)  # that no site's scores run against its outcomes
    adjusted = holm({k: v["p_value"] for k, v in every.items()} | others)
    assert {k: v["adjusted"] for k, v in every.items()} == {k: adjusted[k] for k in every}
    assert all(bool(v["named"]) == (v["adjusted"] <= 0.0125) for v in every.values())


@pytest.mark.parametrize("score", ["positive", "confidence"])
@pytest.mark.parametrize("std", [0.0, 1.8, 1e6])
@pytest.mark.parametrize("rows", [0, 1, 10**6])
def test_any_release_has_verdicts(score, std, rows):
    sites = {"a": (0, 0.0, 1.0), "b": (rows, 0.0, 1.0)}
    found = verdicts_of(release(sites, score, std), {"q": release(sites, score, std)}, level=0.01)
    json.dumps(found, allow_nan=False)
    assert found["sites"]["a"]["words"] == "cannot tell: noise hides any fault"
    assert not found["sites"]["b"]["named"]
    if rows == 10**6 and std < 1e6:
        assert found["sites"]["b"]["words"] == "no fault above 2 points found"


def test_what_is_detectable_before_anything_ran():
    facts = {"edges": edges_of("positive"), "std": 1.8, "tests": 23, "level": 0.0125}
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
    gaps = [verdicts_of(of, {}, level=0.01)["sites"]["a"]["gap"] for of in (one, four)]
    narrow, wide = (gap["high"] - gap["low"] for gap in gaps)
    assert 1.9 * narrow < wide < 2 * narrow
