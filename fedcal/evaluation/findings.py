"""What a release says of models, and of groups of rows: all metrics, as `result.json` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcal.evaluation.estimates import evaluate
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import FIRM, Estimate
from fedcal.types import Floats

FEWEST = 20
"""Rows of a group below which nothing is said of it."""

KEYS = {"model": "metrics", "calibrated": "metrics_after", "other": "metrics_other"}
"""View -> key of its metrics in `result.json`."""

Key = tuple[str, str, str]
"""(view, group, part): whose scores, of which rows ("" = all), of which class ("" = one part)."""

Metrics = Mapping[str, Estimate]
"""By name."""


@dataclass(frozen=True)
class Findings:
    """Metrics of each view of the same rows, together and by group.

    Attributes
    ----------
    score
        what was binned
    threshold, level
        of predictions, and of each interval
    rows
        how many rows there are, with noise, and the noise's std
    metrics
        view -> metrics of all rows; the first view is the model itself
    difference
        metrics of the second view less those of the first, paired; {} with one view
    groups
        group -> view -> metrics; {} for a group of too few rows (by its noisy count)
    """

    score: str
    threshold: float
    level: float
    rows: tuple[float, float]
    metrics: Mapping[str, Metrics]
    difference: Metrics
    groups: Mapping[str, Mapping[str, Metrics]]

    def to_json(self) -> dict[str, Any]:
        """The keys that `result.json` gains."""
        found: dict[str, Any] = {
            "score": self.score,
            "threshold": self.threshold,
            "level": self.level,
            "rows": {"value": self.rows[0], "noise": self.rows[1]},
        }
        found |= {KEYS[view]: _plain(metrics) for view, metrics in self.metrics.items()}
        if self.difference:
            found["metrics_difference"] = _plain(self.difference)
        if self.groups:
            found["groups"] = {
                group: {KEYS[view]: _plain(metrics) for view, metrics in views.items()}
                or {"suppressed": True}
                for group, views in self.groups.items()
            }
        return found


def _plain(metrics: Metrics) -> dict[str, Any]:
    return {name: estimate.to_json() for name, estimate in metrics.items()}


def findings(
    histograms: Mapping[Key, Histogram],
    score: str,
    *,
    agreement: Floats | None = None,
    threshold: float = 0.5,
    level: float = 0.95,
    rows: str = "new",
    seed: int = 0,
) -> Findings:
    """Read all metrics of a release.

    Parameters
    ----------
    histograms
        by (view, group, part)
    score
        what was binned: `positive`, `confidence` or `classes`
    agreement
        (4,) rows that both views, only the first, only the second, and none predicts right
    threshold
        of predictions, for the score `positive`
    level, rows, seed
        as `evaluate` takes them

    Raises
    ------
    InputError
        If the threshold is no edge of a bucket.
    """
    options: dict[str, Any] = {"level": level, "rows": rows, "seed": seed}

    def read(view: str, group: str) -> Metrics:
        parts = [h for (v, g, _), h in histograms.items() if (v, g) == (view, group)]
        if score == "classes":
            from fedcal.evaluation.estimates import evaluate_classes

            return evaluate_classes(parts, **options)
        return evaluate(parts[0], score, threshold=threshold, **options)

    views = list(dict.fromkeys(view for view, _, _ in histograms))
    groups: dict[str, dict[str, Metrics]] = {}
    for _, group, _ in histograms:
        if group and group not in groups:
            some = counted(histograms, views[0], group)
            shown = some[0] >= max(FEWEST, FIRM * some[1])
            groups[group] = {view: read(view, group) for view in views} if shown else {}
    difference: Metrics = {}
    if len(views) == 2 and score != "classes":
        from fedcal.evaluation.estimates import compare

        one, other = (histograms[view, "", ""] for view in views)
        difference = compare(one, other, score, agreement, threshold=threshold, **options)
    return Findings(
        score,
        threshold,
        level,
        counted(histograms, views[0], ""),
        {view: read(view, "") for view in views},
        difference,
        groups,
    )


def counted(histograms: Mapping[Key, Histogram], view: str, group: str) -> tuple[float, float]:
    """Rows of a group, and the std of their noise."""
    h = next(h for (v, g, _), h in histograms.items() if (v, g) == (view, group))
    return float(h.counts.sum()), float(h.noise_std(np.ones_like(h.counts)))
