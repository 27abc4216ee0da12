"""Temperature scaling, then a logistic map of the confidence in the predicted class (ours).

Models trained with clipped gradients are over-confident in a way that no temperature undoes: most
rows are crowded at both ends of the confidence (Zhang et al., Figure 3). A slope and an offset of
the predicted class's log-odds straighten that; they are Platt scaling (Platt 1999) of the top label
(Gupta & Ramdas 2022), which stays the prediction.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.fits.temperature_fit import best_log_a
from fedcal.calibrators.scaling import TemperatureScaling
from fedcal.calibrators.top_label import TINY, with_confidence
from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.numerics import row_sum, shifted, sigmoid, softmax
from fedcal.core.scores import Kind
from fedcal.core.types import Floats, Integers

LARGEST = 8.0
"""The slope is of log-odds up to +-8, a confidence of 0.9997; beyond it is 1. So it does not hang
on the model's largest logits."""

IDENTITY = np.array([0.0, 1.0])
"""Offset and slope that change nothing."""

LIMIT = 20.0
"""No offset or slope leaves its identity by more."""

_STEPS = 100


def top_log_odds(shifted_logits: Floats, a: float) -> Floats:
    """Return the log-odds of each row's largest softmax(a z), (n, c) -> (n,)."""
    rest = row_sum(np.exp(shifted_logits * a)) - 1.0  # of the others, the largest being 1
    return np.asarray(-np.log(np.maximum(rest, TINY)))


def mapped(offset: float, slope: float, s: Floats) -> Floats:
    """Return sigmoid(offset + slope s), the slope 1 beyond s = +-8; (0, 1) = identity, (n,)."""
    inner = np.clip(s, -LARGEST, LARGEST)
    return sigmoid(offset + slope * inner + (s - inner))


def derivatives(offset: float, slope: float, s: Floats, correct: Floats) -> Floats:
    """Return derivatives of each row's -log-likelihood of correctness with `mapped`.

    Returns (n, 5): the gradient in offset and slope, and the upper triangle of the Hessian.
    """
    v, s = mapped(offset, slope, s), np.clip(s, -LARGEST, LARGEST)
    g, h = v - correct, v * (1.0 - v)
    return np.stack([g, g * s, h, h * s, h * s * s], axis=1)


class TopLabelLogistic(Calibrator):
    """A temperature T, then `mapped` log-odds of the predicted class, sigmoid(w_0 + w_1 s).

    The other classes share the rest in proportion to softmax(z / T), as in `TopLabelBinning`; no
    prediction changes.

    Parameters
    ----------
    temperature
        T in [1e-6, 1e6]
    w
        (2,) offset and slope
    classes
        number of classes; 0 = not fitted yet
    """

    parameters = ("temperature", "w")
    kind = "top-label-logistic"

    def __init__(
        self, temperature: float = 1.0, w: ArrayLike = (0.0, 1.0), classes: int = 0
    ) -> None:
        self.temperature = TemperatureScaling(temperature).temperature
        self.w = np.array(w, np.float64)
        if self.w.shape != (2,) or not (np.abs(self.w) <= LIMIT + 1.0).all():
            raise InputError("a top label's map has 2 numbers, offset and slope, within +-21")
        self.classes = whole("classes", classes, 0)

    def _fit(self, z: Floats, y: Integers) -> None:
        """Fit T as `TemperatureScaling`; then w with the least log-loss of correctness."""
        log_a = best_log_a(z, y)
        s = top_log_odds(shifted(z), math.exp(log_a))
        correct = (z.argmax(axis=1) == y).astype(np.float64)
        w = IDENTITY.copy()
        for _ in range(_STEPS):
            g0, g1, h00, h01, h11 = derivatives(float(w[0]), float(w[1]), s, correct).sum(axis=0)
            h = np.array([[h00, h01], [h01, h11]])
            h += (1e-9 * (h00 + h11) + TINY) * np.eye(2)
            step = np.clip(np.linalg.solve(h, [-g0, -g1]), -1.0, 1.0)
            before, w = w, np.clip(w + step, IDENTITY - LIMIT, IDENTITY + LIMIT)
            if np.abs(w - before).max() < 1e-12:
                break
        self.temperature, self.w = math.exp(-log_a), w

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        z = shifted(logits)
        s = top_log_odds(z, 1.0 / self.temperature)
        v = mapped(float(self.w[0]), float(self.w[1]), s)
        probs = softmax(z / self.temperature)
        return np.asarray(with_confidence(logits, probs, v))
