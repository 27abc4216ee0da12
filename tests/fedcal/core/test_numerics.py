import math
from collections.abc import Callable

import numpy as np
import pytest

from fedcal.core import numerics

ROWS = 131  # no multiple of a vector register, of 7 or of 64
CLASSES = pytest.mark.parametrize("classes", [2, 10, 33, 100, 1000])


def logits(classes: int, rows: int = ROWS, scale: float = 4.0) -> np.ndarray:
    return np.random.default_rng(classes).normal(scale=scale, size=(rows, classes))


ROW_FUNCTIONS: list[Callable[[np.ndarray], np.ndarray]] = [
    numerics.row_sum,
    numerics.row_max,
    numerics.softmax,
    lambda z: numerics.tempered_moments(numerics.shifted(z), 0.7)[0],
    lambda z: numerics.tempered_moments(numerics.shifted(z), 0.7)[1],
    lambda z: numerics.tempered_moments(numerics.shifted(z), np.exp(z[:, :1] / 8))[1],
]


@CLASSES
@pytest.mark.parametrize("function", ROW_FUNCTIONS)
def test_a_row_has_the_same_bits_in_any_block(function, classes):
    z = logits(classes)
    before, whole = z.copy(), function(z)
    np.testing.assert_array_equal(z, before)
    for block in (1, 7, 64, ROWS):
        for start in (0, 3):  # another alignment
            parts = [function(z[i : i + block]) for i in range(start, ROWS, block)]
            np.testing.assert_array_equal(np.concatenate(parts), whole[start:])


@CLASSES
def test_sums_and_maxima_are_right(classes):
    z = logits(classes)
    np.testing.assert_allclose(numerics.row_sum(z), [math.fsum(r) for r in z], rtol=0, atol=1e-11)
    assert numerics.row_max(z).tolist() == [max(r) for r in z.tolist()]
    assert (numerics.shifted(z).max(axis=1) == 0).all()
    y = np.arange(ROWS) % classes
    assert numerics.label_entries(z, y).tolist() == [z[i, k] for i, k in enumerate(y)]


@CLASSES
def test_softmax_is_a_distribution_that_keeps_the_order(classes):
    z = logits(classes)
    p = numerics.softmax(z)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_array_equal(p.argsort(axis=1), z.argsort(axis=1))
    np.testing.assert_allclose(np.log(p[:, 0] / p[:, 1]), z[:, 0] - z[:, 1], atol=1e-12)


@CLASSES
@pytest.mark.parametrize("a", [0.05, 0.4, 1.0, 20.0])
def test_moments_against_a_slow_twin(a, classes):
    z = numerics.shifted(logits(classes, rows=5))
    mean, var = numerics.tempered_moments(z, a)
    np.testing.assert_array_equal(numerics.tempered_mean(z, a), mean)
    of_rows = numerics.tempered_moments(z, np.full((5, 1), a))  # one temperature per row
    np.testing.assert_array_equal(of_rows, (mean, var))
    for i, row in enumerate(z.tolist()):
        weight = [math.exp(a * v) for v in row]
        total = math.fsum(weight)
        m = math.fsum(w * v for w, v in zip(weight, row, strict=True)) / total
        v2 = math.fsum(w * (v - m) ** 2 for w, v in zip(weight, row, strict=True)) / total
        assert mean[i] == pytest.approx(m, rel=1e-12, abs=1e-14)
        assert var[i] == pytest.approx(v2, rel=1e-9, abs=1e-13)


def test_extreme_logits():
    for row, want in (
        ([1e300, -1e300], [1.0, 0.0]),
        ([-1e300, -1e300], [0.5, 0.5]),
        ([0.0, -700.0], [1.0, math.exp(-700)]),
        ([5e-324, -5e-324], [0.5, 0.5]),
    ):
        np.testing.assert_allclose(numerics.softmax(np.array([row]))[0], want, rtol=1e-12)
    z = numerics.shifted(np.array([[1e150, -1e150, 0.0], [3.0, 3.0, -1e150]]))
    assert not np.any(numerics.tempered_moments(z, 20.0))


def test_logits_of_probabilities_give_them_back_above_the_floor():
    p = numerics.softmax(logits(10))
    np.testing.assert_allclose(numerics.softmax(numerics.logits_from_probs(p)), p, rtol=1e-12)
    assert numerics.logits_from_probs(np.array([[0.0, 1.0]])).tolist() == [
        [math.log(numerics.FLOOR), 0.0]
    ]
