"""Reliability records: what they hold, the laws of merging, and strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedcal.metrics as metrics
from fedcal.errors import InputError
from fedcal.metrics import Reliability, summary

# No deadline: no test depends on the clock. Derandomized: a run repeats.
steady = settings(deadline=None, derandomize=True)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
COUNTS = ["count", "sum_correct", "class_count", "class_sum_correct"]
SUMS = ["sum_confidence", "class_sum_confidence"]


def rows_of(classes: int) -> st.SearchStrategy[Rows]:
    entry = st.one_of(st.integers(0, 15).map(lambda k: k / 15), st.floats(0.0, 1.0))
    row = st.tuples(*[entry] * classes)
    pairs = st.lists(st.tuples(row, st.integers(0, classes - 1)), min_size=1, max_size=10)
    return pairs.map(lambda xs: (np.array([p for p, _ in xs]), np.array([y for _, y in xs])))


def assert_same(a: Reliability, b: Reliability) -> None:
    """Counts exactly, sums to rounding."""
    for name in COUNTS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in SUMS:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-12, atol=1e-12)


def assert_equal(a: Reliability, b: Reliability) -> None:
    assert a.to_json() == b.to_json()


def test_three_rows_by_hand() -> None:
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
    assert r.mce == pytest.approx(0.5)
    assert r.classwise_ece == pytest.approx((0.5 + 0.625 + 0.875 + 0.25 + 0.5) / 6)


@steady
@given(rows_of(3), st.sampled_from([1, 4, 15]))
def test_plain_twin(data: Rows, bins: int) -> None:
    probs, labels = data
    count, correct = np.zeros((3, bins), int), np.zeros((3, bins), int)
    summed = np.zeros((3, bins))
    for row, y in zip(probs, labels, strict=True):
        for j, v in enumerate(row):
            b = min(math.floor(v * bins), bins - 1)
            count[j, b] += 1
            summed[j, b] += v
            correct[j, b] += j == y
    r = Reliability.of(probs, labels, bins)
    np.testing.assert_array_equal(r.class_count, count)
    np.testing.assert_array_equal(r.class_sum_correct, correct)
    np.testing.assert_allclose(r.class_sum_confidence, summed, rtol=1e-12, atol=1e-12)


@steady
@given(rows_of(3))
def test_scores_of_the_record_are_those_of_the_rows(data: Rows) -> None:
    r, expected = Reliability.of(*data), summary(*data)
    for name in ("accuracy", "ece", "classwise_ece", "mce"):
        assert getattr(r, name) == pytest.approx(expected[name], rel=0, abs=1e-12)


@steady
@given(rows_of(3), rows_of(3), st.sampled_from([1, 7, 15]))
def test_reading_merges(a: Rows, b: Rows, bins: int) -> None:
    both = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    merged = Reliability.of(*a, bins).merge(Reliability.of(*b, bins))
    assert_same(merged, Reliability.of(*both, bins))
    assert merged.ece == pytest.approx(metrics.ece(*both, bins), abs=1e-12)
    assert merged.classwise_ece == pytest.approx(metrics.classwise_ece(*both, bins), abs=1e-12)


@steady
@given(rows_of(2), rows_of(2), rows_of(2))
def test_monoid(a: Rows, b: Rows, c: Rows) -> None:
    x, y, z = (Reliability.of(*d) for d in (a, b, c))
    assert_equal(x + y, y + x)
    assert_same((x + y) + z, x + (y + z))
    zero = Reliability.zero(2, 15)
    assert_equal(x + zero, x)
    assert_equal(zero + x, x)
    assert_equal(x + y, x.merge(y))


def test_many_parts_make_the_whole() -> None:
    rng = np.random.default_rng(3)
    probs, labels = rng.dirichlet(np.full(10, 0.2), 5000), rng.integers(0, 10, 5000)
    owner = rng.integers(0, 40, 5000)
    parts = [Reliability.of(probs[owner == k], labels[owner == k]) for k in range(40)]
    pooled = sum(parts, Reliability.zero(10))
    assert_same(pooled, Reliability.of(probs, labels))
    mean_of_parts = np.mean([part.ece for part in parts])
    assert abs(mean_of_parts - pooled.ece) > 1e-3  # what merging is for


def test_an_empty_lowest_bin_is_exactly_empty() -> None:
    probs = np.random.default_rng(4).uniform(0.3, 0.7, (1000, 2))
    r = Reliability.of(probs, np.zeros(1000, int))
    assert not r.class_count[:, 0].any()
    assert not r.class_sum_confidence[:, 0].any()


@steady
@given(rows_of(2))
def test_json_round_trip(data: Rows) -> None:
    r = Reliability.of(*data)
    text = json.dumps(r.to_json(), allow_nan=False)
    assert_equal(Reliability.from_json(json.loads(text)), r)


def test_zero() -> None:
    zero = Reliability.zero(3, 5)
    assert (zero.rows, zero.classes, zero.bins) == (0, 3, 5)
    assert_equal(Reliability.from_json(zero.to_json()), zero)
    for name in ("accuracy", "ece", "classwise_ece", "mce"):
        with pytest.raises(InputError, match="no rows"):
            getattr(zero, name)


def test_records_do_not_change() -> None:
    r = Reliability.zero(2)
    with pytest.raises(AttributeError):
        r.count = r.count  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        r.count[0] = 1


@pytest.mark.parametrize("other", [(2, 4), (3, 5)])
def test_only_equal_shapes_merge(other: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="can be merged"):
        Reliability.zero(2, 5).merge(Reliability.zero(*other))


def test_adding_something_else_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        Reliability.zero(2) + 1


@pytest.mark.parametrize(("classes", "bins"), [(1, 15), (2, 0), (2, 2**21), (2.0, 15)])
def test_zero_checks_its_size(classes: int, bins: int) -> None:
    with pytest.raises(InputError, match="must be a whole number"):
        Reliability.zero(classes, bins)


def put(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        record[key] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.pop("count"),
        put("extra", 1),
        put("count", "0 0"),
        put("count", [2.0, 0.0]),
        put("count", [True, False]),
        put("count", [2, -1]),
        put("count", [2]),
        put("count", []),
        put("count", [1, 0]),
        put("count", [2**62, 2**62]),
        put("count", [10**30, 0]),
        put("count", [[1, 0], [1]]),
        put("sum_confidence", [math.nan, 0.0]),
        put("sum_confidence", [math.inf, 0.0]),
        put("sum_confidence", [-0.5, 0.0]),
        put("sum_confidence", [0.5, 99.0]),
        put("sum_confidence", ["0.5", "0.5"]),
        put("sum_confidence", None),
        put("sum_correct", [3, 0]),
        put("class_count", [[1, 1]]),
        put("class_count", [[1, 1], [1, 0]]),
        put("class_sum_correct", [[0, 0], [0, 0]]),
        put("class_sum_confidence", {"a": 1}),
    ],
)
def test_hostile_records(change: Callable[[dict[str, Any]], None]) -> None:
    record = Reliability.of([[0.25, 0.75], [0.75, 0.25]], [0, 0], bins=2).to_json()
    Reliability.from_json(record)  # fine before the change
    change(record)
    with pytest.raises(InputError) as caught:
        Reliability.from_json(record)
    assert "\n" not in str(caught.value)


def test_a_record_is_a_mapping() -> None:
    with pytest.raises(InputError, match="exactly the keys"):
        Reliability.from_json([1, 2])  # type: ignore[arg-type]


def test_exports() -> None:
    names = ["accuracy", "bin_index", "brier", "classwise_ece", "ece", "mce", "nll", "summary"]
    assert sorted(metrics.__all__) == sorted(["Reliability", "metric_intervals", *names])
    assert all(hasattr(metrics, name) for name in metrics.__all__)
