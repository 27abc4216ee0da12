"""ROC, precision-recall, reliability and decision curves of a release, as parts of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.classes import called
from fedcal.core.pages import Curve, Part, Point
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.curves import (
    DecisionCurve,
    decision_curve,
    precision_recall_curve,
    reliability,
    roc_curve,
)
from fedcal.evaluation.findings import Findings, Key
from fedcal.evaluation.histogram import Histogram


def names_of(views: Iterable[str]) -> dict[str, str]:
    """Return view -> its name in figures and tables."""
    if "calibrated" in (names := list(views)):
        return {"model": "before", "calibrated": "after"}
    return {view: {"other": "other model"}.get(view, view) for view in names}


MOST_CLASSES = 10
"""Classes in a figure: the first ones."""

LEAST_BENEFIT = -0.1
"""Net benefits below it are not drawn: towards a threshold of 1 they have no lower end."""

WIDEST = 0.5
"""Bins of a reliability diagram with a wider interval are uninformative and left out."""

Lines = tuple[tuple[Point, ...], tuple[Point, ...]]
"""Points, and the ends of the interval at each."""


_DIAGONAL: tuple[Point, ...] = ((0.0, 0.0), (1.0, 1.0))
_CURVES: tuple[tuple[str, tuple[str, str], Any, dict[str, tuple[Point, ...]]], ...] = (
    ("ROC", ("false positive rate", "true positive rate"), roc_curve, {"chance": _DIAGONAL}),
    ("Precision and recall", ("recall", "precision"), precision_recall_curve, {}),
)


def curve_parts(
    findings: Findings, histograms: Mapping[Key, Histogram], names: Sequence[str] | None = None
) -> list[Part]:
    """Return the curves of a score over all rows; with several classes each is a series."""
    whole = {key: h for key, h in histograms.items() if key[1] == ""}
    if findings.score == "classes":
        first = next(iter(whole))[0]
        shown = {
            called(names, int(part)): h for (view, _, part), h in whole.items() if view == first
        }
        series = dict(list(shown.items())[:MOST_CLASSES])
    else:
        views = names_of(findings.metrics)
        series = {views[view]: h for (view, _, _), h in whole.items()}
    level = findings.level
    parts: list[Part | None] = []
    if findings.score != "confidence":
        parts += [
            _part(
                title,
                axes,
                {
                    name: _lines(c.x, c.y, c.low, c.high)
                    for name, h in series.items()
                    for c in (curve(h, level=level),)
                },
                references,
            )
            for title, axes, curve, references in _CURVES
        ]
    parts.append(reliability_part("Reliability", series, findings.score, level))
    if findings.score == "positive":
        parts.append(_decisions(series, level))
    return [part for part in parts if part is not None]


def reliability_part(
    title: str, series: Mapping[str, Histogram], score: str, level: float
) -> Curve | None:
    """Return reliability diagrams with intervals; None if every bin is too uncertain."""
    outcome = "share correct" if score == "confidence" else "share of the outcome"
    named = "confidence" if score == "confidence" else "score"
    return _part(
        title,
        (f"mean {named}", outcome),
        {name: _reliability(h, level) for name, h in series.items()},
        {"perfect": _DIAGONAL},
        f"Bins of the {named}, each with its {100 * level:g} % interval. A bin whose interval "
        f"is wider than {WIDEST:g} is left out.",
    )


def _part(
    title: str,
    axes: tuple[str, str],
    lines: Mapping[str, Lines],
    references: Mapping[str, tuple[Point, ...]],
    note: str = "",
) -> Curve | None:
    """Return a curve of the series that have points; None without any."""
    there = {name: line for name, line in lines.items() if line[0]}
    if not there:
        return None
    series = {name: points for name, (points, _) in there.items()}
    bands = {name: ends for name, (_, ends) in there.items()}
    return Curve(title, *axes, series, bands, references, note)


def _lines(
    x: Floats, y: Floats, low: Floats, high: Floats, keep: NDArray[np.bool_] | None = None
) -> Lines:
    """Return finite points, each once, and intervals that contain them."""
    there = np.isfinite(x) & np.isfinite(y) & np.isfinite(low) & np.isfinite(high)
    if keep is not None:
        there &= keep
    low, high = np.minimum(low, y), np.maximum(high, y)
    each = list(zip(*(np.round(v[there], 6).tolist() for v in (x, y, low, high)), strict=True))
    each = [row for k, row in enumerate(each) if k == 0 or row != each[k - 1]]
    return tuple((x, y) for x, y, _, _ in each), tuple((a, b) for _, _, a, b in each)


def _reliability(h: Histogram, level: float) -> Lines:
    r = reliability(h, level=level)
    return _lines(r.score, r.share, r.low, r.high, r.high - r.low <= WIDEST)


def _decisions(series: Mapping[str, Histogram], level: float) -> Curve | None:
    """Return the net benefit of each model, against treating all rows and none."""
    curves = {name: decision_curve(h, level=level) for name, h in series.items()}

    def line(c: DecisionCurve, y: Floats, low: Floats, high: Floats) -> Lines:
        low = np.maximum(low, LEAST_BENEFIT)
        return _lines(c.thresholds, y, low, high, y >= LEAST_BENEFIT)

    lines = {name: line(c, c.net_benefit, c.low, c.high) for name, c in curves.items()}
    first = next(iter(curves.values()))
    everybody, _ = line(first, *[first.treat_all] * 3)
    references = {"treat all": everybody, "treat none": ((0.0, 0.0), (1.0, 0.0))}
    return _part(
        "Decision curve",
        ("threshold", "net benefit"),
        lines,
        {name: points for name, points in references.items() if points},
        "True positives minus false positives at the odds of the threshold, per row: the gain of "
        "treating rows with a risk above the threshold, compared with treating none.",
    )
