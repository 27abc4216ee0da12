"""The model's probabilities mixed with uniform ones."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.base import Calibrator
from fedcal.core.checks import InputError, integer
from fedcal.core.numerics import Floats, Integers, Kind, softmax


class Smoothing(Calibrator):
    """(1 - w) softmax(z) + w / c, whose mean confidence equals the accuracy; keeps predictions.

    Parameters
    ----------
    weight
        w in [0, 0.999]; 0 changes nothing
    classes
        number of classes; 0 = not fitted yet
    """

    parameters = ("weight",)
    kind = "smoothing"

    def __init__(self, weight: float = 0.0, classes: int = 0) -> None:
        self.weight = float(weight)
        if not 0 <= self.weight <= 0.999:
            raise InputError(
                f"the weight of uniform probabilities must lie in [0, 0.999], got {weight}"
            )
        self.classes = integer("classes", classes, 0)

    @staticmethod
    def best(excess: float, above: float) -> float:
        """Return w from sums over rows of (confidence - correct) and of (confidence - 1 / c)."""
        return float(np.clip(excess / above, 0.0, 0.999)) if above > 0 else 0.0

    def _fit(self, z: Floats, y: Integers) -> None:
        top, right = softmax(z).max(axis=1), z.argmax(axis=1) == y
        self.weight = self.best(float((top - right).sum()), float((top - 1 / z.shape[1]).sum()))

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        return softmax(logits) * (1.0 - self.weight) + self.weight / self.classes
