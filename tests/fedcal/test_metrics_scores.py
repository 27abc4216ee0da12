"""Scores against numbers by hand, a plain-loop twin, laws, and torchmetrics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedcal.metrics as metrics
from fedcal.errors import InputError
from fedcal.metrics import accuracy, brier, classwise_ece, ece, mce, nll, scores, summary

# No deadline: no test depends on the clock. Derandomized: a run repeats.
steady = settings(deadline=None, derandomize=True)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
KEYS = ["accuracy", "ece", "classwise_ece", "nll", "brier", "mce"]


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
        "mce": max(gap(b) / len(b) for b in top.values()),
    }


def draw_rows(rng: np.random.Generator, n: int, c: int, sharpness: float) -> Rows:
    z = rng.normal(size=(n, c)) * sharpness
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True), rng.integers(0, c, n)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Fifteenths (edges and ties abound) or arbitrary doubles; rows need not sum to 1."""
    n, c = draw(st.integers(1, 12)), draw(st.integers(2, 5))
    entry = st.one_of(st.integers(0, 15).map(lambda k: k / 15), st.floats(0.0, 1.0))
    flat = draw(st.lists(entry, min_size=n * c, max_size=n * c))
    labels = draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n))
    return np.array(flat).reshape(n, c), np.array(labels)


# -- by hand ------------------------------------------------------------------------------------


def test_four_rows_by_hand() -> None:
    probs = np.array([[0.75, 0.25], [0.75, 0.25], [0.125, 0.875], [0.5, 0.5]])
    labels = np.array([0, 1, 1, 1])
    # 4 bins. Top: .75 right, .75 wrong, .875 right, .5 (class 0) wrong.
    assert accuracy(probs, labels) == 0.5
    # bin 2: .5 - 0; bin 3: 2.375 - 2.
    assert ece(probs, labels, 4) == pytest.approx((0.5 + 0.375) / 4, abs=1e-15)
    assert mce(probs, labels, 4) == pytest.approx(0.5, abs=1e-15)
    # class 0, bins 0, 2, 3: .125 - 0, .5 - 0, 1.5 - 1; class 1, bins 1, 2, 3: .5 - 1, .5 - 1,
    # .875 - 1
    by_class = (0.125 + 0.5 + 0.5) + (0.5 + 0.5 + 0.125)
    assert classwise_ece(probs, labels, 4) == pytest.approx(by_class / 8, abs=1e-15)
    assert nll(probs, labels) == pytest.approx(
        -(math.log(0.75) + math.log(0.25) + math.log(0.875) + math.log(0.5)) / 4, abs=1e-15
    )
    assert brier(probs, labels) == pytest.approx(
        2 * (0.25**2 + 0.75**2 + 0.125**2 + 0.5**2) / 4, abs=1e-15
    )


def test_perfect_and_perfectly_wrong_predictions() -> None:
    probs, labels = np.eye(3), np.arange(3)
    zero = dict.fromkeys(KEYS, 0.0)
    assert summary(probs, labels) == {**zero, "accuracy": 1.0}
    wrong = summary(probs, (labels + 1) % 3)
    assert wrong["brier"] == 2.0
    assert wrong["nll"] == pytest.approx(-math.log(1e-12))
    assert (wrong["accuracy"], wrong["ece"], wrong["mce"]) == (0.0, 1.0, 1.0)
    assert wrong["classwise_ece"] == pytest.approx(2 / 3)


def test_constant_classes_at_their_frequency_are_classwise_calibrated() -> None:
    probs, labels = np.tile([0.5, 0.25, 0.25], (8, 1)), np.array([0, 0, 0, 0, 1, 1, 2, 2])
    assert classwise_ece(probs, labels) == 0.0
    assert ece(probs, labels) == 0.0


def test_the_floor_of_nll() -> None:
    probs = np.array([[1.0, 0.0], [1 - 1e-11, 1e-11]])
    assert nll(probs, [1, 1]) == pytest.approx(-(math.log(1e-12) + math.log(1e-11)) / 2, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 40])
def test_the_first_of_equal_probabilities_is_predicted(classes: int) -> None:
    probs = np.full((classes, classes), 1 / classes)
    assert accuracy(probs, np.arange(classes)) == 1 / classes
    assert accuracy(probs, np.zeros(classes, int)) == 1.0
    last_two = np.zeros((2, classes))
    last_two[:, -2:] = 0.5
    assert accuracy(last_two, [classes - 1, classes - 2]) == 0.5


def test_bins_are_closed_below() -> None:
    # Both rows at the edge 1/3 = 5/15: one bin, where the gaps cancel with those just above it.
    probs = np.array([[5 / 15, 0.2, 0.1], [5.5 / 15, 0.2, 0.1]])
    assert ece(probs, [0, 1]) == pytest.approx(abs(10.5 / 15 - 1) / 2, abs=1e-15)
    below = probs.copy()
    below[0, 0] = np.nextafter(5 / 15, 0.0)
    assert ece(below, [0, 1]) == pytest.approx((10 / 15 + 5.5 / 15) / 2, abs=1e-15)


def test_probabilities_slightly_above_one() -> None:
    probs, labels = np.array([[1 + 2e-5, 0.0], [0.0, 1 + 2e-5]]), [0, 1]
    assert ece(probs, labels) == pytest.approx(2e-5, abs=1e-12)
    assert classwise_ece(probs, labels) == pytest.approx(2e-5 / 2, abs=1e-12)
    assert accuracy(probs, labels) == 1.0


# -- against the twin ---------------------------------------------------------------------------


@steady
@given(rows(), st.sampled_from([1, 2, 7, 10, 15, 100]))
def test_twin_on_small_rows(data: Rows, bins: int) -> None:
    expected = twin(*data, bins)
    assert summary(*data, bins=bins) == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("bins", [1, 15, 128])
@pytest.mark.parametrize(("n", "c"), [(3000, 2), (1000, 10), (300, 33), (40, 700)])
@pytest.mark.parametrize("sharpness", [0.5, 6.0])
def test_twin_on_drawn_rows(n: int, c: int, sharpness: float, bins: int) -> None:
    probs, labels = draw_rows(np.random.default_rng([n, c, bins]), n, c, sharpness)
    assert summary(probs, labels, bins) == pytest.approx(twin(probs, labels, bins), abs=1e-12)


@pytest.mark.parametrize(("block", "pending"), [(1, 1), (64, 50), (1000, 10**6)])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, block: int, pending: int) -> None:
    probs, labels = draw_rows(np.random.default_rng(5), 501, 7, 2.0)
    expected = twin(probs, labels, 15)
    monkeypatch.setattr(scores, "_BLOCK", block)
    monkeypatch.setattr(scores, "_PENDING", pending)
    assert summary(probs, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", KEYS)
def test_each_score_is_that_of_the_summary(name: str) -> None:
    probs, labels = draw_rows(np.random.default_rng(6), 400, 9, 2.0)
    alone: Callable[..., float] = getattr(metrics, name)
    assert alone(probs, labels) == pytest.approx(summary(probs, labels)[name], rel=0, abs=1e-14)
    assert type(alone(probs, labels)) is float
    assert list(summary(probs, labels)) == KEYS


def test_number_of_bins_reaches_the_binned_scores() -> None:
    probs, labels = draw_rows(np.random.default_rng(7), 400, 5, 2.0)
    seven, expected = summary(probs, labels, bins=7), twin(probs, labels, 7)
    for score in (ece, classwise_ece, mce):
        assert score(probs, labels, bins=7) == pytest.approx(expected[score.__name__], abs=1e-12)
        assert seven[score.__name__] == pytest.approx(expected[score.__name__], abs=1e-12)


def test_dtype_order_and_stride_do_not_matter() -> None:
    probs, labels = draw_rows(np.random.default_rng(8), 300, 6, 3.0)
    single = probs.astype(np.float32)
    expected = summary(single.astype(np.float64), labels)
    assert summary(single, labels) == expected
    assert summary(np.asfortranarray(single), labels.astype(np.uint8)) == expected
    assert summary(single.astype(">f8"), labels) == expected
    assert summary(np.repeat(single, 2, axis=1)[:, ::2], labels.tolist()) == expected
    assert summary(np.eye(2, dtype=int), [0, 1])["accuracy"] == 1.0


def test_negative_zero_is_zero() -> None:
    assert summary(np.array([[1.0, -0.0]]), [0]) == summary(np.array([[1.0, 0.0]]), [0])


def test_input_is_left_alone() -> None:
    probs, labels = draw_rows(np.random.default_rng(9), 50, 4, 3.0)
    before = probs.copy(), labels.copy()
    summary(probs, labels)
    assert (probs == before[0]).all()
    assert (labels == before[1]).all()


# -- laws ---------------------------------------------------------------------------------------


@steady
@given(rows(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(data: Rows, random: object) -> None:
    probs, labels = data
    order = list(range(len(labels)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = summary(probs[order], labels[order])
    assert shuffled == pytest.approx(summary(probs, labels), rel=0, abs=1e-12)


@steady
@given(rows())
def test_bounds(data: Rows) -> None:
    s = summary(*data)
    assert abs(s["accuracy"] - data[0].max(axis=1).mean()) <= s["ece"] + 1e-12
    assert s["ece"] <= s["mce"] + 1e-12
    assert 0 <= s["mce"] <= 1
    assert 0 <= s["accuracy"] <= 1
    assert 0 <= s["classwise_ece"] <= 1
    assert 0 <= s["nll"] <= -math.log(1e-12)
    assert 0 <= s["brier"] <= data[0].shape[1]


@steady
@given(rows())
def test_one_bin_is_the_mean_gap(data: Rows) -> None:
    probs, labels = data
    expected = abs(probs.max(axis=1).mean() - accuracy(probs, labels))
    assert ece(probs, labels, 1) == pytest.approx(expected, abs=1e-12)
    frequency = np.bincount(labels, minlength=probs.shape[1]) / len(labels)
    expected = np.abs(probs.mean(axis=0) - frequency).mean()
    assert classwise_ece(probs, labels, 1) == pytest.approx(expected, abs=1e-12)


# -- refusals -----------------------------------------------------------------------------------

ALL: list[Callable[..., object]] = [accuracy, ece, classwise_ece, nll, brier, mce, summary]


@pytest.mark.parametrize("score", ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1e-9, -math.nan, 1.002])
@pytest.mark.parametrize("classes", [3, 40])
def test_bad_probabilities(score: Callable[..., object], bad: float, classes: int) -> None:
    probs = np.full((5, classes), 1 / classes)
    probs[3, 1] = bad
    with pytest.raises(InputError, match=r"finite and in \[0, 1\]; row 3, class 1 is") as caught:
        score(probs, [0, 1, 2, 0, 1])
    assert "\n" not in str(caught.value)


def test_a_bad_row_of_a_later_block_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "_BLOCK", 4)
    probs = np.full((9, 2), 0.5)
    probs[7, 0] = 1.5
    for score in (ece, classwise_ece):
        with pytest.raises(InputError, match=r"row 7, class 0 is 1\.5"):
            score(probs, [0] * 9)


HALVES = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 0.5], [0, 1], "shape"),
        ([[1.0], [1.0]], [0, 0], "classes >= 2"),
        (np.empty((0, 3)), [], "at least one row"),
        ([["0.5", "0.5"]], [0], "must be numbers"),
        ([[0.5, 0.5], [0.5]], [0, 1], "rectangular"),
        ([[0.5 + 0j, 0.5]], [0], "must be numbers"),
        (HALVES, [0], "one entry per row"),
        (HALVES, [[0], [1]], "one entry per row"),
        (HALVES, [0, 2], "whole numbers in"),
        (HALVES, [-1, 0], "whole numbers in"),
        (HALVES, [0.0, 1.0], "whole numbers in"),
        (HALVES, [True, False], "whole numbers in"),
    ],
)
@pytest.mark.parametrize("score", ALL)
def test_bad_shapes_and_labels(
    score: Callable[..., object], probs: object, labels: object, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        score(probs, labels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("score", [ece, classwise_ece, mce, summary])
@pytest.mark.parametrize("bins", [0, -3, 1.5])
def test_bad_bins(score: Callable[..., object], bins: object) -> None:
    with pytest.raises(InputError, match="bins must be"):
        score(HALVES, [0, 1], bins=bins)


# -- a second library ---------------------------------------------------------------------------


def test_torchmetrics_agrees_away_from_edges() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, at import
        theirs = pytest.importorskip("torchmetrics.functional.classification")
        torch = pytest.importorskip("torch")
        probs, labels = draw_rows(np.random.default_rng(10), 2000, 6, 2.0)
        scaled = probs * 15
        assert np.abs(scaled - np.round(scaled)).min() > 1e-6
        p, y = torch.tensor(probs), torch.tensor(labels)
        top, worst = (
            float(theirs.multiclass_calibration_error(p, y, 6, n_bins=15, norm=norm))
            for norm in ("l1", "max")
        )
        each = [
            float(theirs.binary_calibration_error(p[:, j], (y == j).long(), n_bins=15))
            for j in range(6)
        ]
    # They add up in single precision.
    assert ece(probs, labels) == pytest.approx(top, abs=1e-5)
    assert mce(probs, labels) == pytest.approx(worst, abs=1e-5)
    assert classwise_ece(probs, labels) == pytest.approx(np.mean(each), abs=1e-5)
