"""Prediction sets: which labels, what test rows tell of them, files, pages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import binom

from fedcal import pages
from fedcal.artifact import Holdout
from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.judged import binomial_interval
from fedcal.errors import InputError
from fedcal.pages import Curve, Intervals, Table

PROBS = np.array([[0.1, 0.5, 0.15, 0.25], [0.7, 0.1, 0.1, 0.1], [0.2, 0.3, 0.4, 0.1]])
LOGITS = np.log(PROBS)
LABELS = np.array([3, 0, 0])


def lac(*thresholds: float, by: str = "none", names: tuple[str, ...] = ()) -> PredictionSets:
    return PredictionSets(Conformity(), np.array(thresholds), 4, 0.1, by, names)


def test_labels_whose_score_is_at_most_the_threshold() -> None:
    sets = lac(0.7)
    expected = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0]]
    assert_array_equal(sets.predict_set(LOGITS), np.array(expected, bool))
    assert_array_equal(sets.sizes(LOGITS), [1, 1, 2])
    predicted, shaped = sets.mapie_sets(LOGITS)
    assert_array_equal(predicted, [1, 0, 2])
    assert shaped.shape == (3, 4, 1)
    assert_array_equal(shaped[:, :, 0], sets.predict_set(LOGITS))
    of_probs = replace(sets, input="probs")
    assert_array_equal(of_probs.predict_set(PROBS), sets.predict_set(LOGITS))
    assert_array_equal(of_probs.mapie_sets(PROBS)[0], predicted)
    assert lac(1.0).predict_set(LOGITS).all()
    assert lac(0.7).predict_set(np.zeros((0, 4))).shape == (0, 4)


def test_thresholds_of_classes_and_groups() -> None:
    sets = lac(0.0, 0.0, 1.0, 0.75, by="class")
    assert_array_equal(sets.predict_set(LOGITS)[0], [False, False, True, True])
    sets = lac(0.5, 0.75, 0.9, by="group", names=("a", "b"))
    assert_array_equal(sets.sizes(LOGITS[[0, 0, 0]], ["a", "b", "unknown"]), [1, 2, 4])
    for groups in (None, ["a"]):
        with pytest.raises(InputError, match="say the rows' groups"):
            sets.predict_set(LOGITS, groups)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="for 4 classes, the rows have 3"):
        lac(0.5).predict_set(LOGITS[:, :3])
    for thresholds, match in (([0.5, 0.5], "shape"), ([1.5], r"in \[0, 1\]"), ([np.nan], "in")):
        with pytest.raises(InputError, match=match):
            lac(*thresholds)


def test_the_file_gives_the_same_sets(tmp_path: Path) -> None:
    made = PredictionSets(
        Conformity("raps", randomised=True, penalty=0.1, free=1, seed=4),
        np.array([0.6, 0.8, 1.0]),
        4,
        0.2,
        "group",
        ("a", "b"),
        "probs",
        ("proven",),
        ("private",),
    )
    assert made.write(tmp_path, "sets") == ["sets.npz"]
    read = PredictionSets.read(tmp_path, "sets")
    assert isinstance(read, PredictionSets)
    assert (read.conformity, read.names, read.guarantee) == (
        made.conformity,
        ("a", "b"),
        ("proven",),
    )
    groups = ["b", "a", "c"]
    assert_array_equal(read.predict_set(PROBS, groups), made.predict_set(PROBS, groups))


# -- what test rows tell ------------------------------------------------------------------


def holdout(rows: int = 3, known: bool = True) -> Holdout:
    at = np.arange(rows) % 3
    more = {}
    if known:
        more = {"owner": at % 2, "names": ("x", "y"), "group": at, "group_names": ("a", "b", "c")}
    return Holdout(LOGITS[at], PROBS[at], LABELS[at], **more)  # type: ignore[arg-type]


def test_judged_by_hand() -> None:
    sets = lac(0.75)
    assert sets.results()["after"] is None
    told = sets.judge(holdout())
    # sets {1, 3}, {0}, {1, 2}; labels 3, 0, 0
    assert told["before"] == {"coverage": 1 / 3, "set_size": 1.0}
    assert told["after"] == pytest.approx(
        {"coverage": 2 / 3, "set_size": 5 / 3, "singletons": 1 / 3, "empty": 0, "all_labels": 0}
    )
    by = told["coverage_by"]
    assert by["class"]["0"]["coverage"] == 0.5
    assert set(by["class"]) == {"0", "3"}
    assert (by["size"]["2"]["rows"], by["size"]["2"]["coverage"]) == (2, 0.5)
    assert by["site"]["x"]["set_size"] == 2.0
    assert by["group"]["b"]["coverage"] == 1.0
    assert sets.glance(holdout()) == pytest.approx({"coverage": 2 / 3, "set_size": 5 / 3})
    json.dumps({**sets.results(), **told}, allow_nan=False)
    assert "site" not in sets.judge(holdout(known=False))["coverage_by"]


def test_groups_of_test_rows_choose_their_thresholds() -> None:
    groups = lac(0.3, 0.3, 0.7, 1.0, by="group", names=("a", "b", "c"))
    test = holdout()
    assert groups.judge(test)["after"]["set_size"] == pytest.approx(3 / 3)  # {}, {0}, {1, 2}
    sites = lac(0.0, 0.7, 0.8, by="group", names=("x", "y"))
    assert sites.judge(test)["after"]["set_size"] == pytest.approx(1 / 3)
    unknown = sites.judge(holdout(known=False))
    assert unknown["after"] == lac(0.8).judge(test)["after"]  # that of the others


def test_intervals_are_those_of_the_binomial_law() -> None:
    hits, rows = np.array([0.0, 5.0, 10.0, 90.0]), np.array([10, 10, 10, 100])
    low, high = binomial_interval(hits, rows)
    assert (low[0], high[2]) == (0.0, 1.0)
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, rows[1:], low[1:]), 0.025, rtol=1e-9)
    inner = [0, 1, 3]
    np.testing.assert_allclose(binom.cdf(hits[inner], rows[inner], high[inner]), 0.025, rtol=1e-9)


def test_the_page() -> None:
    sets = replace(lac(0.75), guarantee=("At least 90 % of new rows.",))
    promise, *rest = shown = [*sets.page(), *sets.judged_page(holdout(300))]
    assert pages.from_json(json.loads(json.dumps(pages.to_json(shown)))) == shown
    assert isinstance(promise, Table)
    assert "90 % coverage" in promise.title
    assert promise.note == "At least 90 % of new rows."
    kinds = [(type(part), part.title) for part in rest]
    assert kinds == [
        (Table, "Coverage"),
        (Intervals, "Coverage by class"),
        (Intervals, "Coverage by site"),
        (Intervals, "Coverage by group"),
        (Intervals, "Coverage by set size"),
        (Curve, "Set sizes"),
        (Table, "Examples of sets"),
    ]
    examples = rest[-1]
    assert isinstance(examples, Table)
    assert examples.rows[0][1:] == ("0", "yes", "0")
    assert examples.rows[-1][2:] in {("yes", "1, 3"), ("no", "2, 1")}
    everything = lac(1.0).judged_page(holdout(known=False))
    assert isinstance(everything[-1], Table)
    assert everything[-1].rows[0][3] == "all labels"
    assert isinstance(nothing := lac(0.0).judged_page(holdout())[-1], Table)
    assert nothing.rows[0][2:] == ("no", "none")


def test_the_page_says_what_coverage_was_promised_to() -> None:
    def promised(sets: PredictionSets) -> set[str]:
        parts = sets.judged_page(holdout(30))
        forests = [part for part in parts if isinstance(part, Intervals)]
        return {part.title for part in forests if "not promised" not in part.note}

    assert promised(lac(0.75)) == set()
    assert promised(lac(0.5, 0.5, 0.5, 0.5, by="class")) == {"Coverage by class"}
    by_site = lac(0.5, 0.6, 1.0, by="group", names=("x", "y"))
    assert promised(by_site) == {"Coverage by site"}
