"""Temperature scaling (Guo et al. 2017): softmax(z / T)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.calibrators.base import Calibrator, check_rows
from fedcal.checks import positive, whole
from fedcal.numerics import label_entries, shifted, softmax, tempered_moments
from fedcal.types import Floats

LOG_A_LIMIT = math.log(20.0)
"""|log T| stays within this: rows without errors have their optimum at T = 0."""

_CACHED = 1 << 16  # numbers of a block of rows whose temporaries stay in the processor's cache


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
        z = shifted(z)
        self.temperature = math.exp(-_best_log_a(z, label_entries(z, y)))
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


def _sums(z: NDArray[Any], of_label: NDArray[Any], log_a: float) -> tuple[float, float]:
    """First and (Gauss-Newton) second derivative of the summed loss in log a, a = 1/T."""
    a = z.dtype.type(math.exp(log_a))
    g = h = 0.0
    step = max(1, _CACHED // z.shape[1])
    for i in range(0, len(z), step):
        mean, var = tempered_moments(z[i : i + step], a)
        g += float((mean - of_label[i : i + step]).sum())
        h += float(var.sum())
    return g * float(a), h * float(a) ** 2


def _best_log_a(z: Floats, of_label: Floats) -> float:
    """Root of the monotone score, by Newton inside a bracket.

    Cheap looks first: a thousand rows, then all rows in single precision, and only the last
    steps (often one) in double precision. The result does not depend on the cheap looks beyond
    the tolerance of the last stage.
    """
    log_a = 0.0
    if len(z) > 4000:
        few = slice(None, None, len(z) // 1000)
        log_a = _newton(z[few], of_label[few], log_a, 1e-2)
    log_a = _newton(_single(z), _single(of_label), log_a, 1e-3)
    return _newton(z, of_label, log_a, 1e-6)


def _single(x: Floats) -> NDArray[np.float32]:
    """In single precision; masked classes (logits of -1e38) must not overflow there."""
    return np.maximum(x, -1e30).astype(np.float32)


def _newton(z: NDArray[Any], of_label: NDArray[Any], log_a: float, tolerance: float) -> float:
    """Newton steps until one is below `tolerance` (the error left is about its square)."""
    low, high = -LOG_A_LIMIT, LOG_A_LIMIT
    for _ in range(60):
        g, h = _sums(z, of_label, log_a)
        low, high = (log_a, high) if g < 0 else (low, log_a)
        step = -g / h if h > 0 else math.copysign(math.inf, -g) if g else 0.0
        proposal = log_a + max(-0.7, min(0.7, step))
        if not low <= proposal <= high:
            proposal = (low + high) / 2
        moved, log_a = abs(proposal - log_a), proposal
        if moved < tolerance:
            break
    return log_a
