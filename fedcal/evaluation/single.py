"""One metric by itself, as a run that asked for nothing else yields it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.artifact import Artifact, Holdout
from fedcal.evaluation.intervals import Estimate
from fedcal.pages import Table

_NUMBERS = ("value", "low", "high", "sampling", "noise", "binning")

UNKNOWN = Estimate(float("nan"), 0.0, 1.0, float("nan"), float("nan"), 0.0, True)
"""Before anything was released."""


@dataclass(frozen=True)
class SingleMetric(Artifact):
    """One metric of the clients' rows, with its interval.

    The bias of clipping is not in the interval.

    Attributes
    ----------
    name
        of the metric
    estimate
        what is known of it
    """

    form = "metric"
    noun = "metric"

    name: str
    estimate: Estimate

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Name, numbers, and whether the noise drowns it."""
        return {
            "name": np.array(self.name),
            "numbers": np.array([getattr(self.estimate, n) for n in _NUMBERS]),
            "drowned": np.array(self.estimate.drowned),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `arrays` gave."""
        numbers = dict(zip(_NUMBERS, arrays["numbers"].astype(float).tolist(), strict=True))
        return cls(str(arrays["name"]), Estimate(**numbers, drowned=bool(arrays["drowned"])))

    def judge(self, test: Holdout) -> dict[str, Any]:
        """The metric of the clients' rows: a release, and nothing of the test rows."""
        return {"metrics": {self.name: self.estimate.to_json()}}

    def page(self) -> list[Any]:
        """A table of one line."""
        found = self.estimate
        shown: tuple[str | float, ...]
        if found.drowned:
            shown = ("drowned by noise", found.low, found.high)
        else:
            shown = (found.value, found.low, found.high)
        note = (
            "Interval: the noise of the release and the choice of rows. What clipping cuts off "
            "clients that differ much from the rest is not in it."
        )
        return [Table("Metric", ("metric", "value", "low", "high"), ((self.name, *shown),), note)]
