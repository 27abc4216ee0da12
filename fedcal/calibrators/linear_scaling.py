"""Vector and matrix scaling (Guo et al. 2017): softmax(diag(a) z + b) and softmax(A z + b)."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.fits.curvature import class_triangle
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.core.types import Floats, override


class VectorScaling(ParametricScaling):
    """A slope and an offset for each class: w = (a, b), 2c numbers. Predictions may change."""

    kind = "vector"

    @classmethod
    @override
    def size(cls, classes: int) -> int:
        return 2 * classes

    @classmethod
    @override
    def identity(cls, classes: int) -> Floats:
        return np.concatenate([np.ones(classes), np.zeros(classes)])

    @classmethod
    def scores(cls, features: Floats, w: Floats) -> Floats:
        """Return the calibrated logits a z + b."""
        c = features.shape[1]
        return np.asarray(features * w[..., :c] + w[..., c:])

    @classmethod
    def pull_back(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Return (r z, r) of residuals r, (n, 2c)."""
        return np.concatenate([residual * features, residual], axis=1)

    @classmethod
    def diagonal(cls, features: Floats, w: Floats, probs: Floats) -> Floats:
        """Return (p (1 - p) z^2, p (1 - p))."""
        return cls.pull_back(features * features, w, probs * (1 - probs))

    @classmethod
    def triangle(cls, features: Floats, w: Floats, probs: Floats, rows: int) -> Floats:
        """Return the Hessian itself: scores are linear in w."""
        factors = np.concatenate([features, np.ones_like(features)], axis=1)
        return class_triangle(probs, factors, rows)


class MatrixScaling(ParametricScaling):
    """All classes in the score of each: w = (A row by row, b), c^2 + c numbers.

    Predictions may change. With so many parameters it overfits unless rows are plenty.
    """

    kind = "matrix"
    wide = True

    @classmethod
    @override
    def size(cls, classes: int) -> int:
        return classes * classes + classes

    @classmethod
    @override
    def identity(cls, classes: int) -> Floats:
        return np.concatenate([np.eye(classes).ravel(), np.zeros(classes)])

    @classmethod
    def scores(cls, features: Floats, w: Floats) -> Floats:
        """Return A z + b, one dot product for each entry: a matrix product would mix rows."""
        c = features.shape[1]
        a = w[..., : c * c].reshape(*w.shape[:-1], c, c)
        return np.asarray(np.vecdot(a, features[:, None, :]) + w[..., c * c :])

    @classmethod
    def pull_back(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Return (r z', r) of residuals r, (n, c^2 + c)."""
        outer = residual[:, :, None] * features[:, None, :]
        return np.concatenate([outer.reshape(len(features), -1), residual], axis=1)

    @classmethod
    def gradient(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Return the same sum without an outer product for each row."""
        r, z = np.ascontiguousarray(residual.T), np.ascontiguousarray(features.T)
        outer = np.vecdot(r[:, None, :], z[None, :, :])
        return np.concatenate([outer.ravel(), residual.sum(axis=0)])

    @classmethod
    def diagonal(cls, features: Floats, w: Floats, probs: Floats) -> Floats:
        """Return (p_j (1 - p_j) z_k^2, p_j (1 - p_j))."""
        return cls.pull_back(features * features, w, probs * (1 - probs))
