"""Prediction sets: scores and labels, what test rows tell of them, files, pages."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import each_is_refused
from scipy.stats import binom

from fedcal.calibrators.conformity import all_scores, settled, uniform_of
from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.coverage import (
    Basis,
    SetEvaluation,
    binomial_interval,
    evaluate,
    fewer_than_chance,
    shortfalls,
)
from fedcal.core import fitting
from fedcal.core.numerics import Floats
from fedcal.storage.artifact import Holdout

PROBS = np.array([[0.1, 0.5, 0.15, 0.25], [0.7, 0.1, 0.1, 0.1], [0.2, 0.3, 0.4, 0.1]])
LOGITS = np.log(PROBS)
LABELS = np.array([3, 0, 0])


def lac(*thresholds: float, by: str = "none", names: tuple[str, ...] = ()) -> PredictionSets:
    return PredictionSets(Conformity(), np.array(thresholds), 4, 0.1, by, names)


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


# -- scores: by hand, and the same bits by every way ----------------------------------------------

CASES = [
    Conformity("lac"),
    Conformity("aps"),
    Conformity("aps", randomised=True),
    Conformity("raps", penalty=0.1, free=2),
    Conformity("raps", randomised=True),
]


def rows(n: int, c: int, seed: int = 0) -> Floats:
    """Logits of which many are tied, and some rows are all but certain."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, c)) * rng.choice([0.1, 3.0, 200.0], (n, 1))
    logits[::3] = np.round(logits[::3])
    logits[0] = 0.0
    return logits


@pytest.mark.parametrize(
    ("name", "u", "expected"),
    [
        ("lac", None, [[0.9, 0.5, 0.85, 0.75], [0.75] * 4]),
        ("aps", None, [[1.0, 0.5, 0.9, 0.75], [0.25, 0.5, 0.75, 1.0]]),
        ("aps", [0.2, 0.5], [[0.98, 0.4, 0.87, 0.7], [0.125, 0.375, 0.625, 0.875]]),
        # penalty 0.5 after the first: 0, 0.5, 1, 1.5 are added, and all is divided by 2.5
        ("raps", None, [[1.0, 0.2, 0.76, 0.5], [0.1, 0.4, 0.7, 1.0]]),
    ],
)
def test_by_hand(name, u, expected):
    p = np.array([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]])
    parts = None if u is None else np.array(u)
    found = all_scores(name != "lac", p, (parts, 0.5 * (name == "raps"), 1))
    np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize(("conformity", "c"), list(zip(CASES, (40, 2, 3, 40, 2), strict=True)))
def test_all_ways_give_the_same_bits(conformity, c, monkeypatch):
    """Also in blocks, by several threads."""
    logits = rows(300, c)
    scores = conformity.of_all(logits)
    monkeypatch.setattr(fitting, "BLOCK", 64)
    monkeypatch.setattr(fitting, "MANY", 1)
    monkeypatch.setattr(fitting, "usable_cores", lambda: 3)
    assert_array_equal(conformity.of_all(logits), scores)
    assert scores.min() >= 0.0
    assert scores.max() <= 1.0
    for label in range(0, c, max(1, c // 4)):
        of_labels = conformity.of_labels(logits, np.full(300, label))
        assert_array_equal(of_labels, scores[:, label])
    assert_array_equal(conformity.of_all(logits[50:60]), scores[50:60])


def test_penalties_have_thresholds_of_their_own_and_are_of_raps_alone():
    conformity = Conformity("raps", penalty=0.5, free=2)
    edges = conformity.thresholds(10, 12)  # 8 labels with a penalty, a third of 12 thresholds
    np.testing.assert_allclose(edges[-4:], [0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(edges[:8] * 5, Conformity("aps").thresholds(10, 8))
    assert_array_equal(Conformity("raps").thresholds(5, 8), Conformity("aps").thresholds(5, 8))
    table = [
        (("aps", False, 0.1), "it is for the score 'raps', not for 'aps'"),
        (("raps", False, -0.1), "penalty must be"),
        (("raps", False, None, -1), "free must be a whole number >= 0"),
    ]
    each_is_refused(table, lambda given: Conformity(*given))


def test_parts_are_uniform_and_of_the_row_alone():
    logits = np.random.default_rng(0).normal(size=(200_000, 3))
    u = uniform_of(logits)
    assert_array_equal(u[7:9], uniform_of(logits[7:9]))
    assert 0.0 <= u.min() < u.max() < 1.0
    cells = np.bincount((u * 100).astype(int), minlength=100)
    assert ((cells - 2000) ** 2 / 2000).sum() < 99 + 4 * np.sqrt(198)  # chi square
    for other in (uniform_of(logits[:, ::-1]), logits[:, 0], u[1:]):
        n = len(other)
        assert abs(np.corrcoef(u[:n], other)[0, 1]) < 4 / np.sqrt(n)
    assert uniform_of(np.array([[-0.0, 1.0]])) == uniform_of(np.array([[0.0, 1.0]]))
    assert uniform_of(logits.astype(np.float32)).shape == (200_000,)
    of_before = uniform_of(np.array([[0.0, 1.0, 2.0], [2.0, -1.0, 0.5]]))
    assert_array_equal(of_before, [0.0033400779919141588, 0.5056662511241174])


def test_probabilities_that_differ_in_their_last_bits_are_equal():
    """But for one in 2**13 that lies where they are rounded."""
    p = np.random.default_rng(0).dirichlet(np.ones(4), 5000)
    assert (settled(np.nextafter(p, 1.0)) == settled(p)).mean() > 0.998
    np.testing.assert_allclose(settled(p), p, rtol=2.0**-40)
