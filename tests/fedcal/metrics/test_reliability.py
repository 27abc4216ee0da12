"""Reliability records: what they hold, the laws of merging, and strict JSON."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from refusals import each_is_refused

from fedcal.metrics import Reliability, summary

# No deadline: no test depends on the clock. Derandomized: a run repeats.
steady = settings(deadline=None, derandomize=True)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def rows_of(classes: int) -> st.SearchStrategy[Rows]:
    cut = st.one_of(st.integers(0, 15), st.floats(0.0, 15.0))
    row = st.tuples(*[cut] * (classes - 1)).map(lambda at: np.diff([0, *sorted(at), 15]) / 15)
    pairs = st.lists(st.tuples(row, st.integers(0, classes - 1)), min_size=1, max_size=10)
    return pairs.map(lambda xs: (np.array([p for p, _ in xs]), np.array([y for _, y in xs])))


def assert_equal(a: Reliability, b: Reliability) -> None:
    assert a.to_json() == b.to_json()


def test_three_rows_by_hand():
    probs = np.array([[0.75, 0.25], [0.875, 0.125], [0.5, 0.5]])
    r = Reliability.of(probs, [0, 1, 1], bins=4)
    assert (r.rows, r.classes, r.bins) == (3, 2, 4)
    assert r.to_json() == {
        "count": [0, 0, 1, 2],
        "sum_confidence": [0, 0, 0.5, 1.625],
        "sum_correct": [0, 0, 0, 1],
        "class_count": [[0, 0, 1, 2], [1, 1, 1, 0]],
        "class_sum_confidence": [[0, 0, 0.5, 1.625], [0.125, 0.25, 0.5, 0]],
        "class_sum_correct": [[0, 0, 0, 1], [1, 0, 1, 0]],
    }
    assert r.accuracy == pytest.approx(1 / 3)
    assert r.ece == pytest.approx((0.5 + 0.625) / 3)
    assert r.classwise_ece == pytest.approx((0.5 + 0.625 + 0.875 + 0.25 + 0.5) / 6)


@steady
@given(rows_of(3), rows_of(3), st.sampled_from([1, 7, 15]))
def test_reading_merges(a, b, bins):
    """As entry by entry; and scores are those of the rows."""
    probs, labels = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    count, correct, summed = np.zeros((3, 3, bins))
    for row, y in zip(probs, labels, strict=True):
        for j, v in enumerate(row):
            at = sum(np.float32(v) >= np.float32(k / bins) for k in range(1, bins))
            count[j, at] += 1
            summed[j, at] += v
            correct[j, at] += j == y
    merged = Reliability.of(probs, labels, bins)
    np.testing.assert_array_equal(merged.class_count, count)
    np.testing.assert_array_equal(merged.class_sum_correct, correct)
    np.testing.assert_allclose(merged.class_sum_confidence, summed, rtol=1e-12, atol=1e-12)
    expected = summary(probs, labels, bins)
    for name in ("accuracy", "ece", "classwise_ece"):
        assert getattr(merged, name) == pytest.approx(expected[name], rel=0, abs=1e-12)
    text = json.dumps(merged.to_json(), allow_nan=False)
    assert_equal(Reliability.from_json(json.loads(text)), merged)


def test_hostile_records():
    record = Reliability.of([[0.25, 0.75], [0.75, 0.25]], [0, 0], bins=2).to_json()
    assert Reliability.from_json(record).rows == 2  # fine before the change
    changes: dict[str, list[Any]] = {
        "extra": [1],
        "count": ["0 0", [2.0, 0.0], [True, False], [2, -1], [2], [], [1, 0], [[1, 0], [1]]],
        "sum_confidence": [[math.nan, 0.0], [math.inf, 0.0], [-0.5, 0.0], [0.5, 99.0], None],
        "sum_correct": [[3, 0]],
        "class_count": [[[1, 1]], [[1, 1], [1, 0]]],
        "class_sum_correct": [[[0, 0], [0, 0]]],
        "class_sum_confidence": [{"a": 1}],
    }
    table: list[tuple[Any, str]] = [
        ({**record, key: value}, "") for key, values in changes.items() for value in values
    ]
    table += [({**record, "count": [2**62, 2**62]}, ""), ({**record, "count": [10**30, 0]}, "")]
    without = {key: value for key, value in record.items() if key != "count"}
    table += [(without, ""), ([1, 2], "exactly the keys")]
    each_is_refused(table, Reliability.from_json)
