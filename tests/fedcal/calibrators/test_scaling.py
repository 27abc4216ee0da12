"""Vector and matrix scaling against their definitions."""

import numpy as np
import pytest

from fedcal.calibrators import MatrixScaling, VectorScaling
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.core.numerics import label_entries, softmax

LINEAR: list[type[ParametricScaling]] = [VectorScaling, MatrixScaling]
each_linear = pytest.mark.parametrize("cls", LINEAR, ids=lambda cls: cls.kind)
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


def loss(cls: type[ParametricScaling], z: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    f = cls.scores(z, w)
    return np.asarray(np.log(np.exp(f).sum(axis=1)) - label_entries(f, y))


@each_linear
@pytest.mark.parametrize("classes", [2, 5])
def test_the_gradient_is_that_of_the_loss(cls, classes):
    z, y = cls.features(*rows(classes))
    w, h = parameters(cls, classes), 1e-6
    r = softmax(cls.scores(z, w))
    r[np.arange(len(y)), y] -= 1
    got = cls.pull_back(z, w, r)
    assert got.shape == (len(z), cls.size(classes))
    for k, step in enumerate(np.eye(len(w)) * h):
        want = (loss(cls, z, y, w + step) - loss(cls, z, y, w - step)) / (2 * h)
        np.testing.assert_allclose(got[:, k], want, rtol=1e-6, atol=1e-7)
