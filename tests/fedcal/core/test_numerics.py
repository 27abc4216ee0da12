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
