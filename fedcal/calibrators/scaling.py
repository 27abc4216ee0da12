"""Temperature scaling (Guo et al. 2017): softmax(z / T)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.calibrators.base import Calibrator, check_rows
from fedcal.checks import positive, whole
from fedcal.numerics import label_entries, shifted, softmax
from fedcal.types import Floats, Integers

LOG_A_LIMIT = math.log(20.0)
"""|log T| stays within this: rows without errors have their optimum at T = 0."""

_CACHED = 1 << 14  # numbers of a block of rows whose temporaries stay in the processor's cache
_FEW = 32  # up to so many classes, a class is laid out contiguously
_STEP = 1.0  # of log(1/T)


class TemperatureScaling(Calibrator):
    """One parameter, the temperature T; never changes a prediction.

    Parameters
    ----------
    temperature : T > 0
    classes : number of classes; 0 = not fitted yet
    """

    kind = "temperature"

    def __init__(self, temperature: float = 1.0, classes: int = 0) -> None:
        self.temperature = positive("temperature", temperature)
        self.classes = whole("classes", classes, 0)

    def fit(self, logits: ArrayLike, labels: ArrayLike) -> Self:
        """The T in [1/20, 20] with the least negative log-likelihood on pooled rows."""
        z, y = check_rows(logits, labels)
        self.temperature = math.exp(-_best_log_a(_Pooled.of(z, y)))
        self.classes = z.shape[1]
        return self

    def _predict(self, logits: Floats) -> Floats:
        return softmax(logits / self.temperature)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """`temperature` () and `classes` ()."""
        return {"temperature": np.array(self.temperature), "classes": np.array(self.classes)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From what `arrays` wrote."""
        return cls(float(arrays["temperature"]), int(arrays["classes"]))


@dataclass(frozen=True)
class _Pooled:
    """Shifted logits of all rows, laid out so that sums over classes are fast.

    z : (c, n) for few classes, else (n, c); each row's largest entry is 0
    axis : of the classes
    of_label : (n,) entry of each row's label
    """

    z: Floats
    axis: int
    of_label: Floats

    @classmethod
    def of(cls, logits: Floats, labels: Integers) -> _Pooled:
        if logits.shape[1] > _FEW:
            z = shifted(logits)
            return cls(z, 1, label_entries(z, labels))
        z = logits.T.copy()  # C order: a class is contiguous
        z -= z.max(axis=0)
        return cls(z, 0, z[labels, np.arange(len(labels))])

    def every(self, k: int) -> _Pooled:
        """Each k-th row."""
        z = self.z[:, ::k] if self.axis == 0 else self.z[::k]
        return _Pooled(z, self.axis, self.of_label[::k])

    def derivatives(self, log_a: float, dtype: type[np.floating[Any]]) -> tuple[float, ...]:
        """Of the summed loss in log a: the first, its Gauss-Newton second, and the true third.

        With cumulants k1, k2, k3 of a row's logits under softmax(a z) they are sums over rows of
        G = a (k1 - z_y), H = a^2 k2 and G + 3 H + a^3 k3; the true second is G + H.
        """
        a, n = math.exp(log_a), len(self.of_label)
        step = max(1, _CACHED // self.z.shape[self.axis])
        sums = np.zeros(3)
        for i in range(0, n, step):
            z = self.z[:, i : i + step] if self.axis == 0 else self.z[i : i + step]
            sums += _cumulants(z.astype(dtype, copy=False), self.axis, dtype(a))
        g, h = a * (sums[0] - self.of_label.sum()), a**2 * sums[1]
        return float(g), float(h), float(g + 3 * h + a**3 * sums[2])


def _cumulants(z: NDArray[Any], axis: int, a: Any) -> tuple[float, float, float]:
    """First three cumulants of each row under softmax(a z), summed over rows."""
    e = z * a
    np.exp(e, out=e)
    total = e.sum(axis=axis)
    raw = []
    for _ in range(3):
        e *= z
        raw.append(e.sum(axis=axis) / total)
    mean, second, third = raw
    var = second - mean**2
    cumulants = mean, var, third - mean * (3 * var + mean**2)
    return tuple(float(k.sum(dtype=np.float64)) for k in cumulants)  # type: ignore[return-value]


def _best_log_a(rows: _Pooled) -> float:
    """Root of the monotone score.

    Cheap looks first: a thousand rows, then all rows in single precision, and only the last
    steps (nearly always one) in double precision. The result does not depend on the cheap looks
    beyond the tolerance of the last stage.
    """
    log_a, n = 0.0, len(rows.of_label)
    if n > 4000:
        log_a = _root(rows.every(n // 1000), log_a, np.float32, 0.1)
    log_a = _root(rows, log_a, np.float32, 0.1)
    return _root(rows, log_a, np.float64, 3e-4)


def _root(rows: _Pooled, log_a: float, dtype: type[np.floating[Any]], tolerance: float) -> float:
    """Halley steps inside a bracket, until one is below `tolerance`.

    The error left is about its cube. Where the loss is not convex in log a, or the step would be
    long, a bounded Gauss-Newton step or a bisection takes over.
    """
    low, high = -LOG_A_LIMIT, LOG_A_LIMIT
    for _ in range(60):
        g, h, third = rows.derivatives(log_a, dtype)
        low, high = (log_a, high) if g < 0 else (low, log_a)
        second = g + h
        divisor = 2 * second**2 - g * third
        if second > 0 and divisor > 0:
            step = -2 * g * second / divisor
        else:
            step = -g / h if h > 0 else math.copysign(math.inf, -g) if g else 0.0
        proposal = log_a + max(-_STEP, min(_STEP, step))
        if not low <= proposal <= high:
            proposal = (low + high) / 2
        moved, log_a = abs(proposal - log_a), proposal
        if moved < tolerance:
            break
    return log_a
