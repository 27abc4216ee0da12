"""Temperature scaling (Guo et al. 2017): softmax(z / T), and the model as it is."""

from __future__ import annotations

import math
from typing import Any

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.fits.temperature_fit import best_log_a
from fedcal.core.checks import positive, whole
from fedcal.core.errors import InputError
from fedcal.core.numerics import LOG_A_LIMIT, softmax
from fedcal.core.scores import Kind
from fedcal.core.types import Floats, Integers, override
from fedcal.storage.artifact import Holdout, at_end

LEAST, MOST = 1e-6, 1e6
"""Temperatures beyond these do not calibrate, and overflow."""


class TemperatureScaling(Calibrator):
    """One parameter, the temperature T; never changes a prediction.

    Parameters
    ----------
    temperature
        T in [1e-6, 1e6]
    classes
        number of classes; 0 = not fitted yet
    """

    parameters = ("temperature",)
    kind = "temperature"

    def __init__(self, temperature: float = 1.0, classes: int = 0) -> None:
        self.temperature = positive("temperature", temperature)
        if not LEAST <= self.temperature <= MOST:
            raise InputError(f"temperature must lie in [1e-6, 1e6], got {temperature!r}")
        self.classes = whole("classes", classes, 0)

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
