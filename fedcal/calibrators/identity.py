"""The model's own probabilities as a calibrator."""

from __future__ import annotations

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.operators import Array, Constants, Operators
from fedcal.core.types import Floats, Integers, override
from fedcal.storage.artifact import Holdout


class Identity(Calibrator):
    """softmax(z): no calibration, the baseline `none`."""

    kind = "identity"

    def _fit(self, z: Floats, y: Integers) -> None:
        """Learn nothing but the number of classes."""

    @override
    def expression(self, o: Operators, z: Array, constants: Constants) -> Array:
        return o.softmax(z)

    def _calibrate(self, test: Holdout) -> Floats:
        """Return the model's own probabilities, to the last bit."""
        return test.probs
