"""Metrics: numbers by hand, a plain-loop twin, laws; bins and their records; encoded counts."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import scored
from numpy.typing import NDArray
from refusals import each_is_refused

import fedcal.metrics as metrics
from fedcal.core.numerics import FLOOR, softmax
from fedcal.metrics import (
    Reliability,
    below_floor,
    bin_index,
    classwise_ece,
    ece,
    nll,
    score_table,
    standard,
    summary,
)
from fedcal.strategies.methods import counting

# No deadline: no test depends on the clock. Derandomized: a run repeats.
steady = settings(deadline=None, derandomize=True)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
KEYS = ["accuracy", "ece", "classwise_ece", "nll", "brier"]


def twin(probs: NDArray[np.float64], labels: NDArray[np.int64], bins: int) -> dict[str, float]:
    """The definitions, entry by entry."""
    n, c = probs.shape
    top: dict[int, list[tuple[float, int]]] = {}
    each: dict[tuple[int, int], list[tuple[float, int]]] = {}
    logs, squares, right = [], [], 0
    for i in range(n):
        row, y = [float(v) for v in probs[i]], int(labels[i])
        best = row.index(max(row))
        right += best == y
        where = min(math.floor(row[best] * bins), bins - 1)
        top.setdefault(where, []).append((row[best], int(best == y)))
        for j in range(c):
            where = min(math.floor(row[j] * bins), bins - 1)
            each.setdefault((j, where), []).append((row[j], int(j == y)))
            if c > 2 or j == 1:
                squares.append((row[j] - (j == y)) ** 2)
        logs.append(-math.log(max(row[y], 1e-12)))

    def gap(members: list[tuple[float, int]]) -> float:
        return abs(math.fsum(conf - correct for conf, correct in members))

    return {
        "accuracy": right / n,
        "ece": math.fsum(gap(b) for b in top.values()) / n,
        "classwise_ece": math.fsum(gap(b) for b in each.values()) / (n * c),
        "nll": math.fsum(logs) / n,
        "brier": math.fsum(squares) / n,
    }


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Fifteenths (edges and ties abound) or other doubles."""
    n, c = draw(st.integers(1, 12)), draw(st.integers(2, 5))
    cut = st.one_of(st.integers(0, 15), st.floats(0.0, 15.0))
    cuts = draw(st.lists(st.lists(cut, min_size=c - 1, max_size=c - 1), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n))
    return np.diff([[0, *sorted(at), 15] for at in cuts]) / 15, np.array(labels)


@steady
@given(rows(), st.sampled_from([1, 2, 7, 10, 15, 100]))
def test_twin_on_small_rows(data, bins):
    expected = twin(*data, bins)
    assert summary(*data, bins=bins) == pytest.approx(expected, rel=0, abs=1e-12)


def many_rows(classes: int = 7) -> Rows:
    logits, labels = scored(classes, 501, 5, scale=2.0)
    return softmax(logits), labels


@pytest.mark.parametrize(("block", "pending"), [(1, 1), (64, 50), (1000, 10**6)])
def test_blocks_change_nothing(monkeypatch, block, pending):
    probs, labels = many_rows()
    monkeypatch.setattr(standard, "_BLOCK", block)
    monkeypatch.setattr(standard, "_PENDING", pending)
    assert summary(probs, labels) == pytest.approx(twin(probs, labels, 15), abs=1e-12)
    assert nll(probs, labels) == pytest.approx(sk.log_loss(labels, probs), abs=1e-12)


@pytest.mark.parametrize("name", KEYS)
def test_each_score_is_that_of_the_summary(name):
    probs, labels = many_rows()
    alone: Callable[..., float] = getattr(metrics, name)
    assert alone(probs, labels) == pytest.approx(summary(probs, labels)[name], rel=0, abs=1e-14)
    if name in ("ece", "classwise_ece"):
        expected = twin(probs, labels, 7)[name]
        assert alone(probs, labels, bins=7) == pytest.approx(expected, abs=1e-12)


def test_the_floor_of_nll():
    p = np.array([[1.0, 0.0], [1 - 1e-13, 1e-13], [0.5, 0.5], [0.0, 1.0]])
    assert below_floor(p, [1, 1, 1, 1]) == 2
    assert summary(p, [1, 1, 1, 1])["nll"] == pytest.approx((np.log(2) - 2 * np.log(FLOOR)) / 4)
    slightly_above_one = np.array([[1 + 2e-5, 0.0], [0.0, 1 + 2e-5]])
    assert ece(slightly_above_one, [0, 1]) == pytest.approx(2e-5, abs=1e-12)
    below, not_below = (np.array([[1.0, low], [0.4, 0.6]]) for low in (-1e-9, 0.0))
    assert summary(below, [0, 1]) == summary(not_below, [0, 1])


@pytest.mark.parametrize("score", [summary, nll, classwise_ece])
def test_what_is_refused(score, monkeypatch):
    for classes in (3, 40):
        table: list[tuple[Any, str]] = []
        for bad in (math.nan, math.inf, -1e-5, 1.002):
            probs = np.full((5, classes), 1 / classes)
            probs[3, 1] = bad
            probs[3, -1] += np.nan_to_num(1 / classes - bad, posinf=0.0, neginf=0.0)
            table.append((probs, r"finite and in \[0, 1\]; row 3, class 1 is"))
        each_is_refused(table, lambda probs: score(probs, [0, 1, 2, 0, 1]))
    halves = [[0.5, 0.5], [0.5, 0.5]]
    table = [
        (([[1.0], [1.0]], [0, 0]), "classes >= 2"),
        ((np.empty((0, 3)), []), "rows >= 1"),
        (([["0.5", "0.5"]], [0]), "must be numbers"),
        (([[0.5, 0.5], [0.5, 0.6]], [0, 1]), r"1\.1 at row 1; each row must sum to 1"),
        ((halves, [0]), "one entry for each row"),
        *(((halves, labels), "whole numbers in") for labels in ([0, 2], [-1, 0], [0.0, 1.0])),
    ]
    each_is_refused(table, lambda given: score(*given))
    if score is not nll:
        each_is_refused([(0, "bins must be")], lambda bins: score(halves, [0, 1], bins=bins))
    monkeypatch.setattr(standard, "_BLOCK", 4)  # a row of a later block
    probs = np.full((9, 2), 0.5)
    for row, says in (((1.5, -0.5), r"row 7, class 0 is 1\.5"), ((0.5, 0.6), r"1\.1 at row 7")):
        probs[7] = row
        each_is_refused([(probs, says)], lambda probs: score(probs, [0] * 9))


# -- bins, records of them, and encodings of counts


@pytest.mark.parametrize("bins", [1, 2, 15, 49, 128, 2**20 - 1])
def test_an_edge_belongs_to_the_bin_above(bins):
    edges, each = np.arange(bins) / bins, np.arange(bins)
    single = edges.astype(np.float32)
    for same in (edges, single, edges * (1 + 1e-15), edges * (1 - 1e-15)):
        np.testing.assert_array_equal(bin_index(same, bins), each)
    below = np.nextafter(single, np.float32(-1.0))[1:]
    np.testing.assert_array_equal(bin_index(below, bins), each[:-1])
    assert bin_index([0.0, -0.0, 5e-324, 1e-40], bins).tolist() == [0] * 4


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


def test_hostile_records():
    record = Reliability.of([[0.25, 0.75], [0.75, 0.25]], [0, 0], bins=2).to_json()
    assert Reliability.from_json(record).to_json() == record  # fine before the change
    changes: dict[str, list[Any]] = {
        "extra": [1],
        "count": ["0 0", [2, -1], [2], [1, 0], [2**62, 2**62]],
        "sum_confidence": [[math.nan, 0.0], [-0.5, 0.0], None],
        "class_count": [[[1, 1]], [[1, 1], [1, 0]]],
        "class_sum_correct": [[[0, 0], [0, 0]]],
    }
    table = [({**record, key: value}, "") for key, each in changes.items() for value in each]
    each_is_refused([*table, ([1, 2], "reliability record")], Reliability.from_json)


@pytest.mark.parametrize("name", score_table.ENCODINGS)
def test_counts_come_back(name):
    for buckets, height in ((1, 1), (2, 3), (9, 2), (64, 3)):
        matrix = score_table.matrix_of(name, buckets, height)
        assert (matrix == np.rint(matrix)).all()
        decoded = score_table.decoder_of(name, buckets, height) @ matrix
        np.testing.assert_allclose(decoded, np.eye(buckets), atol=1e-8)


def largest(name: str, buckets: int, height: int, order: int) -> float:
    sums = np.cumsum(score_table.decoder_of(name, buckets, height), axis=0)
    norm = score_table.column_norm(name, buckets, height, order)
    return norm * float(np.sqrt(np.square(sums).sum(axis=1)).max())


def test_largest_noise_of_a_prefix_sum():
    """METHODS 7 of Henzinger et al. 2023 and Hay et al. 2010, 1,024 counts."""
    assert largest("flat", 1024, 1, 2) == pytest.approx(32.0)
    assert largest("prefix", 1024, 1, 2) == pytest.approx(3.279, abs=1e-3)
    # under pure epsilon few levels are best: a row counts once on each
    assert largest("tree", 1024, 3, 1) < 0.35 * largest("flat", 1024, 1, 1)
    assert counting.prefix_std("tree", 1024, 3, 1) < counting.prefix_std("tree", 1024, 10, 1)
