"""Temperature scaling with a temperature that depends on the entropy of a row."""

from __future__ import annotations

import math

import numpy as np

from fedcal.calibrators.fits.curvature import product_triangle
from fedcal.calibrators.parametric import LIMIT, ParametricScaling
from fedcal.core.numerics import LOG_A_LIMIT, row_sum, shifted
from fedcal.core.types import Floats, override

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
