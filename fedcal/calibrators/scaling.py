"""Temperature scaling (Guo et al. 2017): softmax(z / T), and the model as it is.

The best temperature on pooled rows, fast.

Vector and matrix scaling (Guo et al. 2017): softmax(diag(a) z + b) and softmax(A z + b).

And temperature scaling with a temperature that depends on the entropy of a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.parametric import LIMIT, ParametricScaling, class_triangle, product_triangle
from fedcal.core.checks import interval
from fedcal.core.fitting import LOG_A_LIMIT, label_entries
from fedcal.core.numerics import Floats, Integers, Kind, override, row_sum, shifted, softmax
from fedcal.storage.artifact import Holdout, at_end

_CACHED = 1 << 15  # numbers of a block of rows that stays in the processor's cache
_FEW = 32  # up to so many classes, a class is laid out contiguously
_STEP = 1.0  # of log(1/T)


def best_log_a(logits: Floats, labels: Integers) -> float:
    """Return log(1/T) with the least negative log-likelihood, in [-log 20, log 20].

    Cheap looks first: some 500 rows, then all rows in single precision, and only the last
    steps (nearly always one) in double precision. The result does not depend on the cheap looks
    beyond the tolerance of the last stage.

    Parameters
    ----------
    logits
        (n, c)
    labels
        (n,)
    """
    rows, log_a, n = _Pooled.of(logits, labels), 0.0, len(labels)
    with np.errstate(over="ignore", invalid="ignore"):  # logits beyond single precision
        if n > 4000:
            log_a = _root(rows.rows(slice(None, None, n // 500)), log_a, np.float32, 0.1)
        log_a = _root(rows, log_a, np.float32, 0.1)
    return _root(rows, log_a, np.float64, 3e-4)


@dataclass(frozen=True)
class _Pooled:
    """All rows, laid out so that sums over classes are fast.

    z : logits; (c, n) for few classes, else (n, c)
    axis : of the classes
    top : each row's largest logit, (1, n) or (n, 1)
    of_label : (n,) the label's logit minus the largest
    """

    z: Floats
    axis: int
    top: Floats
    of_label: Floats

    @classmethod
    def of(cls, logits: Floats, labels: Integers) -> _Pooled:
        few = logits.shape[1] <= _FEW
        z, axis = (logits.T.copy(), 0) if few else (logits, 1)
        top = z.max(axis=axis, keepdims=True)
        return cls(z, axis, top, label_entries(logits, labels) - top.ravel())

    def rows(self, which: slice) -> _Pooled:
        """Return some of the rows, without a copy."""
        at = self._at(which)
        return _Pooled(self.z[at], self.axis, self.top[at], self.of_label[which])

    def derivatives(self, log_a: float, dtype: type[np.floating[Any]]) -> tuple[float, ...]:
        """Return the loss's first, Gauss-Newton second and true third derivative in log a.

        With cumulants k1, k2, k3 of a row's logits under softmax(a z) they are sums over rows of
        G = a (k1 - z_y), H = a^2 k2 and G + 3 H + a^3 k3; the true second is G + H.
        """
        a, n = math.exp(log_a), len(self.of_label)
        step = math.ceil(n / max(1, round(self.z.size / _CACHED)))
        # blocks are computed in place: fresh memory would cost more than the arithmetic
        z, e = np.empty((2, *self.z[self._at(slice(step))].shape), dtype)
        sums = np.zeros(3)
        for i in range(0, n, step):
            block, here = self._at(slice(i, i + step)), self._at(slice(min(step, n - i)))
            np.subtract(self.z[block], self.top[block], out=z[here], casting="same_kind")
            sums += _cumulants(z[here], e[here], self.axis, dtype(a))
        g, h = a * (sums[0] - self.of_label.sum()), a**2 * sums[1]
        return float(g), float(h), float(g + 3 * h + a**3 * sums[2])

    def _at(self, which: slice) -> tuple[slice, ...]:
        return (slice(None), which) if self.axis == 0 else (which, slice(None))


def _cumulants(z: NDArray[Any], e: NDArray[Any], axis: int, a: Any) -> tuple[float, ...]:
    """Return each row's first three cumulants under softmax(a z), summed; e is scratch.

    k1 = m1, k2 = m2 - m1^2, k3 = m3 - 3 m1 m2 + 2 m1^3.
    """
    np.multiply(z, a, out=e)
    np.exp(e, out=e)
    total = e.sum(axis=axis)
    mean = _dot(e, z, axis) / total
    e *= z
    second = _dot(e, z, axis) / total
    e *= z
    third = _dot(e, z, axis) / total
    square = mean * mean
    return (
        float(mean.sum(dtype=np.float64)),
        float(second.sum() - square.sum()),
        float(third.sum() - 3 * (mean @ second) + 2 * (mean @ square)),
    )


def _dot(x: NDArray[Any], y: NDArray[Any], axis: int) -> NDArray[Any]:
    """Sum of x y along an axis; each way is the faster one for its layout."""
    return np.asarray(np.vecdot(x, y) if axis == 1 else np.einsum("ij,ij->j", x, y))


def _root(rows: _Pooled, log_a: float, dtype: type[np.floating[Any]], tolerance: float) -> float:
    """Take Halley steps inside a bracket, until one is below `tolerance`.

    The error left is about its cube. Where the loss is hardly convex in log a a Gauss-Newton step,
    and where a step leaves the bracket a bisection takes over. So it does after 20 steps: without
    errors the score only fades and steps never grow, though the root lies at the limit.
    """
    low, high = -LOG_A_LIMIT, LOG_A_LIMIT
    for i in range(60):
        g, h, third = rows.derivatives(log_a, dtype)
        if not math.isfinite(g):
            break
        low, high = (log_a, high) if g < 0 else (low, log_a)
        second = g + h
        curved = 1 - g / second * (third / second) / 2 if second > h / 2 else 0.0
        if curved > 0:
            step = -g / second / curved
        else:
            step = -g / h if h > 0 else math.copysign(math.inf, -g) if g else 0.0
        proposed = log_a + max(-_STEP, min(_STEP, step))
        proposed = max(-LOG_A_LIMIT, min(LOG_A_LIMIT, proposed))
        inside = low <= proposed <= high and i < 20
        moved, log_a = abs(proposed - log_a), proposed if inside else (low + high) / 2
        if (inside and moved < tolerance) or high - low < tolerance**2:
            break
    return log_a


_MOST_PLAUSIBLE = 10.0


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
        """Say that T is at an end of [1/20, 20], which most ways of learning it keep to.

        Or so high that labels may be numbered otherwise than columns: a private run sees no label.
        """
        T, most = self.temperature, math.exp(LOG_A_LIMIT)
        high = (
            f"The temperature is {T:.3g}, as if scores told next to nothing of labels: are labels "
            "the numbers of the columns, from 0?"
        )
        return at_end("The temperature", T, T, (1 / most, most)) + [high] * (T > _MOST_PLAUSIBLE)

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
