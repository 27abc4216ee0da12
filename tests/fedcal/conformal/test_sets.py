"""Prediction sets: which labels, what test rows tell of them, files, pages."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import each_is_refused
from scipy.stats import binom

from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.coverage import (
    Basis,
    SetEvaluation,
    binomial_interval,
    evaluate,
    fewer_than_chance,
    shortfalls,
)
from fedcal.storage.artifact import Holdout

PROBS = np.array([[0.1, 0.5, 0.15, 0.25], [0.7, 0.1, 0.1, 0.1], [0.2, 0.3, 0.4, 0.1]])
LOGITS = np.log(PROBS)
LABELS = np.array([3, 0, 0])


def lac(*thresholds: float, by: str = "none", names: tuple[str, ...] = ()) -> PredictionSets:
    return PredictionSets(Conformity(), np.array(thresholds), 4, 0.1, by, names)


def test_labels_whose_score_is_at_most_the_threshold():
    sets = lac(0.7)
    expected = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    assert_array_equal(sets.predict_set(LOGITS), np.array(expected, bool))
    of_probs = replace(sets, input="probs")
    assert_array_equal(of_probs.predict_set(PROBS), sets.predict_set(LOGITS))


def test_thresholds_of_classes_and_groups():
    sets = lac(0.0, 0.0, 1.0, 0.75, by="class")
    assert_array_equal(sets.predict_set(LOGITS)[0], [False, False, True, True])
    sets = lac(0.5, 0.75, 0.9, by="group", names=("a", "b"))
    assert_array_equal(
        sets.predict_set(LOGITS[[0, 0, 0]], ["a", "b", "unknown"]).sum(axis=1), [1, 2, 4]
    )
    each_is_refused(
        [(groups, "pass the rows' groups") for groups in (None, ["a"])],
        lambda groups: sets.predict_set(LOGITS, groups),
    )
    narrow = [(LOGITS[:, :3], "number of classes of scores for these sets must be 4, got 3")]
    each_is_refused(narrow, lac(0.5).predict_set)
    table = [
        ([0.5, 0.5], r"thresholds must be .* of shape \(1\)"),
        ([1.5], r"in \[0, 1\]"),
        ([np.nan], "in"),
    ]
    each_is_refused(table, lambda thresholds: lac(*thresholds))


def holdout(rows: int = 3, known: bool = True) -> Holdout:
    at = np.arange(rows) % 3
    more = {}
    if known:
        more = {"owner": at % 2, "names": ("x", "y"), "group": at, "group_names": ("a", "b", "c")}
    return Holdout(LOGITS[at], PROBS[at], LABELS[at], **more)


def test_evaluated_by_hand():
    sets = lac(0.75)
    assert sets.results()["after"] is None
    record = sets.judge(holdout())
    # sets {1, 3}, {0}, {1, 2}; labels 3, 0, 0
    assert record["before"] == {"coverage": 1 / 3, "set_size": 1.0}
    assert record["after"] == pytest.approx(
        {"coverage": 2 / 3, "set_size": 5 / 3, "singletons": 1 / 3, "empty": 0, "all_labels": 0}
    )
    by = record["coverage_by"]
    assert by["class"]["0"]["coverage"] == 0.5
    assert set(by["class"]) == {"0", "3"}
    assert (by["size"]["2"]["rows"], by["size"]["2"]["coverage"]) == (2, 0.5)
    assert by["site"]["x"]["set_size"] == 2.0
    assert by["group"]["b"]["coverage"] == 1.0
    assert sets.glance(holdout()) == pytest.approx({"coverage": 2 / 3, "set_size": 5 / 3})
    json.dumps({**sets.results(), **record}, allow_nan=False)
    assert "site" not in sets.judge(holdout(known=False))["coverage_by"]


def test_groups_of_test_rows_choose_their_thresholds():
    groups = lac(0.3, 0.3, 0.7, 1.0, by="group", names=("a", "b", "c"))
    test = holdout()
    assert groups.judge(test)["after"]["set_size"] == pytest.approx(3 / 3)  # {}, {0}, {1, 2}
    sites = lac(0.0, 0.7, 0.8, by="group", names=("x", "y"))
    assert sites.judge(test)["after"]["set_size"] == pytest.approx(1 / 3)
    unknown = sites.judge(holdout(known=False))
    assert unknown["after"] == lac(0.8).judge(test)["after"]  # that of the others


def test_intervals_are_those_of_the_binomial_distribution():
    hits, rows = np.array([0.0, 5.0, 10.0, 90.0]), np.array([10, 10, 10, 100])
    low, high = binomial_interval(hits, rows)
    assert (low[0], high[2]) == (0.0, 1.0)
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, rows[1:], low[1:]), 0.025, rtol=1e-9)
    inner = [0, 1, 3]
    np.testing.assert_allclose(binom.cdf(hits[inner], rows[inner], high[inner]), 0.025, rtol=1e-9)


def evaluated_classes(covered: list[int], rows: int) -> SetEvaluation:
    """Rows of two classes, of which so many of each are covered, by sets of one label."""
    labels = np.repeat([0, 1], rows)
    hit = np.concatenate([np.arange(rows) < k for k in covered])
    chosen = np.where(hit, labels, 1 - labels)
    return evaluate(np.eye(2, dtype=bool)[chosen], labels, labels)


def test_a_class_that_falls_short_is_named_with_what_helps():
    def short(covered: list[int], promised: dict[str, list[str]], rows: int = 1000) -> list[str]:
        return shortfalls(evaluated_classes(covered, rows), 0.1, promised, None, ("well", "ill"))

    (record,) = short([995, 805], {})
    assert "ill 80.5 %" in record
    assert "well" not in record
    assert "--set by=class" in record
    assert short([910, 890], {}) == []  # chance
    (record,) = short([995, 805], {"class": ["0", "1"]})
    assert "the guarantee for each by itself" in record
    assert "--set" not in record
    both = short([850, 850], {})
    assert both[0].startswith("Sets cover 85 %")
    assert "ill 85 %" in both[1]
    assert "well 85 %" in both[1]


def test_the_rows_of_the_threshold_vary_too():
    found = evaluated_classes([4400, 4400], 5000)  # 88 % of 10,000: 6.7 binomial standard errors
    assert shortfalls(found, 0.1, {}, None)[0].startswith("Sets cover 88 %")
    assert shortfalls(found, 0.1, {}, Basis((10_000,)))[0].startswith("Sets cover 88 %")
    of_few = shortfalls(found, 0.1, {}, Basis((300,)))  # such thresholds vary by 1.7 points
    assert not any(record.startswith("Sets cover") for record in of_few)
    rng = np.random.default_rng(0)
    short, runs = 0, 400
    for _ in range(runs):  # 200 scores make a threshold; coverage of 5,000 rows like them
        threshold = np.sort(rng.random(200))[math.ceil(201 * 0.9) - 1]
        hits = rng.binomial(5000, threshold)
        short += fewer_than_chance(hits, 5000, 0.1, 200) < 0.025
    assert binom.cdf(short, runs, 0.025) > 1e-3
    assert binom.sf(short - 1, runs, 0.025) > 1e-3


def test_rows_of_alike_clients_count_as_fewer():
    owner = np.repeat(np.arange(40), 50)
    hit = owner % 10 != 0  # four clients miss all their rows, 36 none
    sets = np.eye(2, dtype=bool)[np.where(hit, 0, 1)]
    parts = {"site": (owner, [str(k) for k in range(40)])}
    found = evaluate(sets, np.zeros(2000, int), np.zeros(2000, int), parts)
    assert found.alike == pytest.approx(50 * 40 / 39)
    assert shortfalls(found, 0.05, {}, None) == []  # 90 % of 39 rows' worth
    assert shortfalls(replace(found, alike=1.0), 0.05, {}, None)
