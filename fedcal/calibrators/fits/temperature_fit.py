"""The best temperature on pooled rows, fast."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.numerics import LOG_A_LIMIT, label_entries
from fedcal.core.types import Floats, Integers

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
        wanted = log_a + max(-_STEP, min(_STEP, step))
        wanted = max(-LOG_A_LIMIT, min(LOG_A_LIMIT, wanted))
        inside = low <= wanted <= high and i < 20
        moved, log_a = abs(wanted - log_a), wanted if inside else (low + high) / 2
        if (inside and moved < tolerance) or high - low < tolerance**2:
            break
    return log_a
