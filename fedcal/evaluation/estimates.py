"""All metrics of one histogram, each with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.evaluation import metrics, ranking, recalibration
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import (
    FIRM,
    Estimate,
    Span,
    estimate,
    fieller,
    mover,
    normal_quantile,
    quadratic,
)
from fedcal.evaluation.metrics import Metric, RatioMetric
from fedcal.evaluation.monotone import monotone_counts
from fedcal.registry import registry
from fedcal.types import Floats

Score = Literal["positive", "confidence"]
Rows = Literal["new", "these"]
"""What an interval is for: new rows like these, or only the rows that were counted."""

METRICS: dict[str, type[Metric]] = registry(
    metrics.Accuracy,
    metrics.BalancedAccuracy,
    metrics.Precision,
    metrics.Recall,
    metrics.Specificity,
    metrics.F1,
    metrics.MatthewsCorrelation,
    metrics.Prevalence,
    metrics.NetBenefit,
    ranking.RocAuc,
    ranking.ConfidenceAuc,
    ranking.AveragePrecision,
    metrics.Brier,
    metrics.BrierUncertainty,
    metrics.LogLoss,
    metrics.Confidence,
    metrics.Gap,
    recalibration.CalibrationSlope,
    recalibration.CalibrationIntercept,
)
"""Metrics that are smooth functions of counts, by name."""

_PROBABILITIES = (
    "gap",
    "brier",
    "brier_uncertainty",
    "log_loss",
    "calibration_slope",
    "calibration_intercept",
)
SCORES: dict[str, tuple[str, ...]] = {
    "positive": (
        "accuracy",
        "balanced_accuracy",
        "precision",
        "recall",
        "specificity",
        "f1",
        "mcc",
        "prevalence",
        "net_benefit",
        "roc_auc",
        "average_precision",
        *_PROBABILITIES,
    ),
    "confidence": ("accuracy", "confidence", "confidence_auc", *_PROBABILITIES),
}
"""Score -> its smooth metrics. Of a confidence, outcome 1 means correct."""


def evaluate(
    h: Histogram,
    score: str,
    *,
    threshold: float = 0.5,
    level: float = 0.95,
    rows: str = "new",
    spread: Mapping[str, float] | None = None,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Every metric of a histogram, with intervals.

    Parameters
    ----------
    h
        rows by score and outcome
    score
        what was binned: `positive`, the probability of the second class of two, with outcome 1
        for that class; or `confidence`, the largest probability, with outcome 1 for correct
    threshold
        lower edge of a bucket; rows with a `positive` score from here on are predicted positive
    level
        of each interval, alone
    rows
        what intervals are for: `new` rows like these, each drawn independently, or `these`
        alone, where only noise and buckets make a value uncertain
    spread
        metric -> variance of its value that clients give, in place of independent rows': the
        intervals are then for new clients like these
    seed
        of simulated noise; the same seed gives the same bits

    Returns
    -------
    dict[str, Estimate]
        by name of the metric

    Raises
    ------
    InputError
        If the score is unknown, the threshold is no edge, or the level is not in (0, 1).
    """
    one_of("score", score, SCORES)
    z = _check(level, rows)
    # The prediction whose correctness is the outcome is made already: all count as predicted 1.
    at = threshold if score == "positive" else 0.0
    found = {}
    for name in SCORES[score]:
        metric = METRICS[name](at)
        span = smooth_span(metric, h, z, rows, (spread or {}).get(name))
        found[name] = estimate(span, metric.binning(h), metric.bounds, metric.scale, z)
    return found


def _check(level: float, rows: str) -> float:
    """The level's quantile."""
    if not 0 < level < 1:
        raise InputError(f"level must be in (0, 1), got {level!r}")
    one_of("rows", rows, get_args(Rows))
    return normal_quantile(level)


def smooth_span(
    metric: Metric, h: Histogram, z: float, rows: str, spread: float | None = None
) -> Span:
    """Interval of a smooth metric from sampling and noise."""
    value = metric.value(h)
    if not math.isfinite(value):
        return Span(value, *metric.bounds, math.nan, math.nan, False)
    if isinstance(metric, metrics.BalancedAccuracy) and spread is None:
        parts = [
            smooth_span(part(metric.threshold), h, z, rows)
            for part in (metrics.Recall, metrics.Specificity)
        ]
        return mover(parts[0], parts[1], value, (0.5, 0.5))
    weights = metric.denominators(h)
    sums = (weights * h.counts).sum(axis=(1, 2))
    firm = bool((sums > FIRM * h.noise_std(weights)).all())
    if isinstance(metric, RatioMetric):
        return replace(_ratio_span(metric, h, z, rows, spread), firm=firm)
    gradient = metric.gradient(h)
    noise = float(h.noise_std(gradient))
    sampling = 0.0
    if rows == "new":
        variance = float((monotone_counts(h) * gradient**2).sum())
        sampling = math.sqrt(variance if spread is None else spread)
    half = z * math.hypot(sampling, noise)
    return Span(value, value - half, value + half, sampling, noise, firm)


def _ratio_span(
    metric: RatioMetric, h: Histogram, z: float, rows: str, spread: float | None
) -> Span:
    top, bottom, *gradients = metric.ratio(h)
    value = top / bottom
    through = np.asarray(np.stack(gradients) @ h.root).reshape(2, -1)
    noise = _coefficients(through @ through.T)
    sampling = np.zeros(3)
    if rows == "new" and spread is not None:
        sampling[0] = spread * bottom**2
    elif rows == "new" and metric.share:  # bottom * t (1 - t)
        sampling[1:] = -bottom / 2, -bottom
    elif rows == "new":
        flat = np.stack(gradients).reshape(2, -1)
        sampling = _coefficients((flat * h.counts.ravel()) @ flat.T)
    low, high = fieller(top, bottom, noise + sampling, z, metric.bounds)
    inside = float(np.clip(value, *metric.bounds))
    by_rows, by_noise = (math.sqrt(quadratic(v, inside)) / bottom for v in (sampling, noise))
    return Span(value, low, high, by_rows, by_noise)


def _coefficients(covariance: Floats) -> Floats:
    """Of Var(top - t bottom), for `fieller`."""
    return np.array([covariance[0, 0], covariance[0, 1], covariance[1, 1]])
