"""The model's own probabilities as a calibrator."""

from __future__ import annotations

from fedcal.calibrators.base import Calibrator
from fedcal.core.numerics import softmax
from fedcal.core.scores import Kind
from fedcal.core.types import Floats, Integers, override
from fedcal.storage.artifact import Holdout


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
