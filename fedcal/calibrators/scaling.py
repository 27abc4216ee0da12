"""Temperature scaling (Guo et al. 2017): softmax(z / T), and the model as it is.

The best temperature on pooled rows, fast.

Vector and matrix scaling (Guo et al. 2017): softmax(diag(a) z + b) and softmax(A z + b).

And temperature scaling with a temperature that depends on the entropy of a row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.parametric import LIMIT, ParametricScaling, class_triangle, product_triangle
from fedcal.core import numerics
from fedcal.core.checks import interval
from fedcal.core.numerics import LOG_A_LIMIT, row_sum, shifted, softmax
from fedcal.core.scores import Kind
from fedcal.core.types import Floats, Integers, override
from fedcal.storage.artifact import Holdout, at_end

_CACHED = 1 << 15  # numbers of a block of rows that stays in the processor's cache
_STEP = 1.0  # of log(1/T)


def best_log_a(logits: Floats, labels: Integers) -> float:
    """Return log(1/T) with the least negative log-likelihood, in [-log 20, log 20].

    A look at some 500 rows comes first; the result does not depend on it beyond the tolerance.

    Parameters
    ----------
    logits
        (n, c)
    labels
        (n,)
    """
    log_a, every = 0.0, len(labels) // 500
    if every > 8:
        log_a = _root(logits[::every], labels[::every], log_a, 0.1)
    return _root(logits, labels, log_a, 1e-6)


def _derivatives(logits: Floats, labels: Integers, log_a: float) -> tuple[float, float]:
    """Return the loss's first and Gauss-Newton second derivative in log a.

    With mean k1 and variance k2 of a row's logits under softmax(a z) they are sums over rows of
    G = a (k1 - z_y) and H = a^2 k2; the true second is G + H.
    """
    a, g, h = math.exp(log_a), 0.0, 0.0
    step = max(1, _CACHED // logits.shape[1])
    for start in range(0, len(labels), step):
        rows = slice(start, start + step)
        z = shifted(logits[rows])
        mean, variance = numerics.tempered_moments(z, a)
        g += a * float((mean - numerics.label_entries(z, labels[rows])).sum())
        h += a**2 * float(variance.sum())
    return g, h


def _root(logits: Floats, labels: Integers, log_a: float, tolerance: float) -> float:
    """Take Newton steps inside a bracket, until one is below `tolerance`.

    The error left is about its square. Where the loss is hardly convex in log a a Gauss-Newton
    step, and where a step leaves the bracket a bisection takes over. So it does after 20 steps:
    without errors the score only fades and steps never grow, though the root lies at the limit.
    """
    low, high = -LOG_A_LIMIT, LOG_A_LIMIT
    for i in range(60):
        g, h = _derivatives(logits, labels, log_a)
        low, high = (log_a, high) if g < 0 else (low, log_a)
        curve = g + h if g + h > h / 2 else h
        step = -g / curve if curve > 0 else math.copysign(math.inf, -g) if g else 0.0
        wanted = log_a + max(-_STEP, min(_STEP, step))
        wanted = max(-LOG_A_LIMIT, min(LOG_A_LIMIT, wanted))
        inside = low <= wanted <= high and i < 20
        moved, log_a = abs(wanted - log_a), wanted if inside else (low + high) / 2
        if (inside and moved < tolerance) or high - low < tolerance**2:
            break
    return log_a


class TemperatureScaling(Calibrator):
    """One parameter, the temperature T; never changes a prediction.

    Parameters
    ----------
    temperature
        T in [1e-6, 1e6]: those beyond do not calibrate, and overflow
    classes
        number of classes; 0 = not fitted yet
    """

    parameters = ("temperature",)
    kind = "temperature"

    def __init__(self, temperature: float = 1.0, classes: int = 0) -> None:
        super().__init__(classes)
        self.temperature = interval("[1e-6, 1e6]")("temperature", temperature)

    def __repr__(self) -> str:
        return f"TemperatureScaling(temperature={self.temperature!r}, classes={self.classes})"

    def _fit(self, z: Floats, y: Integers) -> None:
        """Find T in [1/20, 20] with the least negative log-likelihood on pooled rows."""
        self.temperature = math.exp(-best_log_a(z, y))

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        return softmax(logits / self.temperature)

    def at_limits(self) -> list[str]:
        """Say that T is at an end of [1/20, 20], which most ways of learning it keep to."""
        most = math.exp(LOG_A_LIMIT)
        return at_end("The temperature", self.temperature, self.temperature, (1 / most, most))

    def record(self) -> dict[str, Any]:
        """Return the `temperature` alone."""
        return {"temperature": self.temperature}


class Identity(Calibrator):
    """softmax(z): no calibration, the baseline `none`."""

    kind = "identity"

    def _fit(self, z: Floats, y: Integers) -> None:
        """Learn nothing but the number of classes."""

    @override
    def _predict(self, logits: Floats, input: Kind) -> Floats:
        return softmax(logits)

    def _calibrate(self, test: Holdout) -> Floats:
        """Return the model's own probabilities, to the last bit."""
        return test.probs


class VectorScaling(ParametricScaling):
    """A slope and an offset for each class: w = (a, b), 2c numbers. Predictions may change."""

    kind = "vector"

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
        inside = cls._inside(features, w)
        return np.asarray(inside**2 * cls._variance(features, w, probs)[:, None])

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
