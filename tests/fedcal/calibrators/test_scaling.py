"""Vector and matrix scaling against their definitions."""

import numpy as np
import pytest

from fedcal.calibrators import MatrixScaling, VectorScaling
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.core.numerics import softmax

every_classes = pytest.mark.parametrize("classes", [2, 100])


def rows(classes: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([classes, n])
    return rng.normal(scale=3, size=(n, classes)), rng.integers(0, classes, n)


def parameters(cls: type[ParametricScaling], classes: int) -> np.ndarray:
    rng = np.random.default_rng([classes, 7])
    return cls.identity(classes) + rng.normal(scale=0.2, size=cls.size(classes))


@every_classes
def test_vector_scaling_has_a_slope_and_an_offset_for_each_class(classes):
    z, w = rows(classes)[0], parameters(VectorScaling, classes)
    want = softmax(z * w[:classes] + w[classes:])
    np.testing.assert_array_equal(VectorScaling(w, classes).predict_proba(z), want)


@every_classes
def test_matrix_scaling_is_a_row_of_the_matrix_for_each_class(classes):
    z, w = rows(classes)[0], parameters(MatrixScaling, classes)
    a, b = w[: classes**2].reshape(classes, classes), w[classes**2 :]
    got = MatrixScaling(w, classes).predict_proba(z)
    np.testing.assert_allclose(got, softmax(z @ a.T + b), rtol=1e-11)
