"""All metrics of one histogram, each with an interval."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.removed import check_kept
from fedcal.evaluation.estimators.all_metrics import METRICS
from fedcal.evaluation.estimators.base import Asked, Metric
from fedcal.evaluation.estimators.calibration import ClasswiseEce, Ece
from fedcal.evaluation.estimators.metrics import Gap
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import Estimate, Span, estimate

SCORES = ("positive", "confidence")
"""Scores whose histogram is one. Of a confidence, outcome 1 means correct."""


def evaluate(
    h: Histogram,
    score: str,
    *,
    threshold: float = 0.5,
    level: float = 0.95,
    rows: str = "new",
    seed: int = 0,
    only: Collection[str] = (),
) -> dict[str, Estimate]:
    """Return every metric of a histogram, with intervals.

    Raises InputError if the score is unknown, the threshold is not an edge, or the level is not in
    (0, 1).

    Parameters
    ----------
    h
        rows by score and outcome
    score
        binned score: `positive`, the probability of the second class of two, with outcome 1
        for that class; or `confidence`, the largest probability, with outcome 1 for correct
    threshold
        lower edge of a bucket; rows with a `positive` score from here on (at 1/2: above it) are
        predicted positive
    level
        confidence level of each interval alone
    rows
        population of the intervals: `new` rows like these, each drawn independently, or `these`
        alone, where only noise and buckets make a value uncertain
    seed
        random seed of simulated noise; the same seed gives the same bits
    only
        names of the wanted metrics; none = all that the score has

    Returns
    -------
    dict[str, Estimate]
        by name of the metric
    """
    asked = Asked(level, rows, seed)
    for name in only:
        check_kept(name)
    metrics = metrics_of(score, threshold, {*only, *([Gap.name] if Ece.name in only else [])})
    spans = {name: metric.span(h, asked) for name, metric in metrics.items()}
    each = estimates_of(metrics, spans, h, level)
    return {name: one for name, one in each.items() if not only or name in only}


def metrics_of(score: str, threshold: float, only: Collection[str] = ()) -> dict[str, Metric]:
    """Return the wanted metrics (none = all) of those that a score has, by name."""
    one_of("score", score, SCORES)
    # The prediction whose correctness is the outcome is made already: all count as predicted 1.
    at = threshold if score == "positive" else 0.0
    return {
        name: kind(at)
        for name, kind in METRICS.items()
        if score in kind.scores and (not only or name in only)
    }


def estimates_of(
    metrics: Mapping[str, Metric], spans: Mapping[str, Span], h: Histogram, level: float
) -> dict[str, Estimate]:
    """Return spans with binning and warnings; the ECE is never below the size of the gap.

    Of a metric and that of cut scores the latter is left out, unless noise hides one.
    """
    each = {
        name: replace(metric.estimate(spans[name], level, h), warning=metric.warning(h))
        for name, metric in metrics.items()
    }
    for metric in metrics.values():
        if metric.cut in each:
            both = (each[metric.name], each[metric.cut])
            del each[metric.name if any(e.drowned for e in both) else metric.cut]
    if Ece.name in each and math.isfinite(each[Ece.name].value):
        each[Ece.name] = _above_gap(each[Ece.name], each.get(Gap.name), spans[Ece.name].hidden)
    return each


def _above_gap(ece: Estimate, gap: Estimate | None, hidden: bool) -> Estimate:
    """Return the ECE, value and both ends raised to what |gap|, of the same rows, implies.

    Noise, which is corrected for in each, may leave it below. `hidden`: noise alone may have caused
    it; then it is drowned where its low end stays 0.
    """
    if gap is not None and math.isfinite(gap.value):
        low, high = max(gap.low, -gap.high, 0.0), min(max(abs(gap.low), abs(gap.high)), 1.0)
        value = max(ece.value, low if gap.drowned else abs(gap.value))
        ece = replace(ece, value=value, low=max(ece.low, low), high=max(ece.high, high, value))
    return replace(ece, drowned=True) if hidden and ece.low <= 0 else ece


def evaluate_classes(
    histograms: Sequence[Histogram], *, level: float = 0.95, rows: str = "new", seed: int = 0
) -> dict[str, Estimate]:
    """Return the classwise ECE, by its name.

    Parameters
    ----------
    histograms
        of class j: rows by the probability of j, with outcome 1 for the rows of class j
    level, rows, seed
        as in `evaluate`
    """
    if not histograms:
        raise InputError("metrics of classes need the histogram of at least one class")
    span, binning = ClasswiseEce.span(histograms, Asked(level, rows, seed=seed))
    bounds, scale = ClasswiseEce.bounds, ClasswiseEce.scale
    return {ClasswiseEce.name: estimate(span, binning, bounds, scale, level)}
