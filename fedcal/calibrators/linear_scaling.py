"""Vector and matrix scaling (Guo et al. 2017): softmax(diag(a) z + b) and softmax(A z + b).

And temperature scaling with a temperature that depends on the entropy of a row.
"""

from __future__ import annotations

import math

import numpy as np

from fedcal.calibrators.fits.curvature import class_triangle, product_triangle
from fedcal.calibrators.parametric import LIMIT, ParametricScaling
from fedcal.core.numerics import LOG_A_LIMIT, row_sum, shifted
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


MIDDLE = 0.1
"""The entropy at which log a is w_0; about where the rows lie that decide on a temperature."""


def entropy_from_middle(shifted_logits: Floats) -> Floats:
    """Return the entropy of each row's softmax over its largest value log c, minus `MIDDLE`.

    Parameters
    ----------
    shifted_logits
        (n, c), each row's largest entry 0

    Returns
    -------
    Floats
        (n,) in [-0.1, 0.9]
    """
    e = np.exp(shifted_logits)
    total = row_sum(e)
    # e z is 0 where e is, also for z = -1e100
    entropy = np.log(total) - row_sum(e * shifted_logits) / total
    return np.asarray(np.clip(entropy / math.log(shifted_logits.shape[1]), 0.0, 1.0) - MIDDLE)


class EntropyTemperature(ParametricScaling):
    """softmax(a z) with log a = w_0 + w_1 (h - 0.1), h the row's entropy in units of log c.

    Two parameters: w_0 is log(1/T) of a row of entropy 0.1, w_1 is how much less (or, below 0,
    how much more) rows are cooled the less certain the model is. log a is kept in
    [-log 20, log 20]. Each row is only multiplied by a number > 0, so no prediction changes. The
    entropy is that of softmax(z), of the model as it is.

    Source: temperature as a function of the entropy, Balanya et al. 2022 (adaptive temperature
    scaling); theirs is linear in the logarithm of the entropy, which is not bounded.
    """

    kind = "entropy-temperature"
    limits = LOG_A_LIMIT, LIMIT

    @classmethod
    @override
    def size(cls, classes: int) -> int:
        return 2

    @classmethod
    @override
    def identity(cls, classes: int) -> Floats:
        return np.zeros(2)

    @classmethod
    def scores(cls, features: Floats, w: Floats) -> Floats:
        """Return a z, shifted so that each row's largest entry is 0."""
        z = shifted(features)
        log_a = cls._log_a(entropy_from_middle(z), w)
        return np.asarray(z * np.exp(np.clip(log_a, -LOG_A_LIMIT, LOG_A_LIMIT))[:, None])

    @classmethod
    def pull_back(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Return (r a z, r a z (h - 0.1)); 0 where log a is at its limit."""
        g = row_sum(residual * cls.scores(features, w))
        return np.asarray(cls._inside(features, w) * g[:, None])

    @classmethod
    def diagonal(cls, features: Floats, w: Floats, probs: Floats) -> Floats:
        """Return Var_p(a z) times (1, (h - 0.1)^2)."""
        return np.asarray(
            cls._inside(features, w) ** 2 * cls._variance(features, w, probs)[:, None]
        )

    @classmethod
    def triangle(cls, features: Floats, w: Floats, probs: Floats, rows: int) -> Floats:
        """Return Var_p(a z) times (1, h - 0.1, (h - 0.1)^2)."""
        inside = cls._inside(features, w)
        return product_triangle(inside * cls._variance(features, w, probs)[:, None], inside, rows)

    @classmethod
    def _variance(cls, features: Floats, w: Floats, probs: Floats) -> Floats:
        z = cls.scores(features, w)
        mean = row_sum(probs * z)
        return np.asarray(row_sum(probs * (z - mean[:, None]) ** 2))

    @classmethod
    def _inside(cls, features: Floats, w: Floats) -> Floats:
        """Return the derivative of log a in w, (n, 2)."""
        h = entropy_from_middle(shifted(features))
        inside = np.abs(cls._log_a(h, w)) < LOG_A_LIMIT
        return np.stack([inside, inside * h], axis=1)

    @staticmethod
    def _log_a(h: Floats, w: Floats) -> Floats:
        return np.asarray(w[..., 0] + w[..., 1] * h)
