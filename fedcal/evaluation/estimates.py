"""All metrics of one histogram, each with an interval."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from fedcal.core.checks import one_of
from fedcal.evaluation.estimators.all_metrics import GAPS, METRICS
from fedcal.evaluation.estimators.base import Asked, Metric
from fedcal.evaluation.estimators.constraints import agreed
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import Estimate, Span

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
    sources = (source for name in only if name in GAPS for source in GAPS[name].never_below)
    metrics = metrics_of(score, threshold, {*only, *sources})
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
    """Return spans with binning and warnings, with metrics that constrain each other agreeing.

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
    return agreed(each, {name for name, span in spans.items() if span.hidden})
