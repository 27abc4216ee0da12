"""The model as it is."""

from __future__ import annotations

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.operators import Array, Constants, Operators
from fedcal.core.types import Floats, Integers
from fedcal.storage.artifact import Holdout


class Identity(Calibrator):
    """softmax(z): no calibration, the baseline `none`."""

    kind = "identity"

    def _fit(self, z: Floats, y: Integers) -> None:
        """Learns nothing but the number of classes."""

    def expression(self, o: Operators, z: Array, constants: Constants) -> Array:
        """softmax(z)."""
        return o.softmax(z)

    def _calibrate(self, test: Holdout) -> Floats:
        """The model's own probabilities, to the last bit."""
        return test.probs
