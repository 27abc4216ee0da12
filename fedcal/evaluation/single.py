"""One metric by itself, the result of a run with a single question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import one_of
from fedcal.core.classes import called
from fedcal.core.pages import Table
from fedcal.evaluation.intervals.intervals import Estimate, beyond
from fedcal.evaluation.pages.page import heading, texts
from fedcal.evaluation.weighting import Counted, Weighting
from fedcal.storage.artifact import Artifact

_NUMBERS = ("value", "low", "high", "sampling", "noise", "binning")

UNKNOWN = Estimate(float("nan"), 0.0, 1.0, float("nan"), float("nan"), 0.0, True)
"""Before anything was released."""


@dataclass(frozen=True)
class SingleMetric(Artifact):
    """One metric of the clients' rows, with its interval for new rows like these.

    Attributes
    ----------
    name
        name of the metric
    estimate
        its estimate
    excluded
        sources of error that the interval does not contain, in words
    counted
        see `Weighting`
    """

    form = "metric"
    noun = "metric"

    name: str
    estimate: Estimate
    excluded: tuple[str, ...] = ()
    counted: Counted = "rows"

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Name, numbers, and whether the noise drowns it."""
        return {
            "name": np.array(self.name),
            "numbers": np.array([getattr(self.estimate, n) for n in _NUMBERS]),
            "drowned": np.array(self.estimate.drowned),
            "warning": np.array(self.estimate.warning),
            "excluded": np.array(json.dumps(self.excluded)),
            "counted": np.array(self.counted),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the metric from the arrays of `arrays`."""
        numbers = dict(zip(_NUMBERS, arrays["numbers"].astype(float).tolist(), strict=True))
        warning, drowned = str(arrays["warning"]), bool(arrays["drowned"])
        estimate = Estimate(**numbers, drowned=drowned, warning=warning)
        excluded = json.loads(str(arrays["excluded"]))
        counted = one_of("counted", str(arrays["counted"]), get_args(Counted))
        return cls(str(arrays["name"]), estimate, tuple(map(str, excluded)), counted)

    def results(self) -> dict[str, Any]:
        """Return the metric, the population of its interval and the errors that it excludes."""
        return {
            "weighting": Weighting(self.counted).words,
            "estimand": Weighting(self.counted).intervals("rows"),
            "intervals_exclude": list(self.excluded),
            "metrics": {self.name: self.estimate.to_json()},
        }

    def page(self) -> list[Any]:
        """Return a table with one row."""
        row = (heading(self.name), *texts(self.name, self.estimate))
        of = f"For the probability of {called(self.class_names, 1)}. " * (self.name == "roc_auc")
        what = Weighting(self.counted)
        note = f"{of}Interval: the noise of the release and sampling of {what.counted}."
        note += beyond(self.excluded)
        title = f"Metric: {what.head}"
        return [Table(title, ("metric", "value", "95 % interval"), (row,), note)]
