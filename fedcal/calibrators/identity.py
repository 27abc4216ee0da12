"""The model as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.artifact import Holdout
from fedcal.calibrators.base import Calibrator
from fedcal.checks import whole
from fedcal.numerics import softmax
from fedcal.types import Floats, Integers


class Identity(Calibrator):
    """softmax(z): no calibration, the baseline `none`."""

    kind = "identity"

    def __init__(self, classes: int = 0) -> None:
        self.classes = whole("classes", classes, 0)

    def _fit(self, z: Floats, y: Integers) -> None:
        """Learns nothing but the number of classes."""

    def _predict(self, logits: Floats) -> Floats:
        return softmax(logits)

    def _calibrate(self, test: Holdout) -> Floats:
        """The model's own probabilities, to the last bit."""
        return test.probs

    def arrays(self) -> dict[str, NDArray[Any]]:
        """`classes` ()."""
        return {"classes": np.array(self.classes)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From what `arrays` wrote."""
        return cls(int(arrays["classes"]))
