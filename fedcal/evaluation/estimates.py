"""All metrics of one histogram, each with an interval."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from fedcal.core.checks import one_of
from fedcal.core.registry import registry
from fedcal.core.types import Floats
from fedcal.evaluation.estimators import decomposition, metrics, ranking, slope_intercept
from fedcal.evaluation.estimators.calibration import GAPS, GapMetric
from fedcal.evaluation.estimators.constraints import BELOW, agreed
from fedcal.evaluation.estimators.metrics import Metric, RatioMetric
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.gap_intervals import gap_span, simulate
from fedcal.evaluation.intervals.intervals import (
    FEW,
    FIRM,
    Estimate,
    Span,
    check_rows,
    estimate,
    fieller,
    mover,
    normal_quantile,
    of_share,
    quadratic,
)

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
    decomposition.BrierResolution,
    metrics.BrierUncertainty,
    metrics.LogLoss,
    metrics.Confidence,
    metrics.Gap,
    slope_intercept.CalibrationSlope,
    slope_intercept.CalibrationIntercept,
)
"""Metrics that are smooth functions of counts, by name."""

_PROBABILITIES = (
    "gap",
    "brier",
    "brier_resolution",
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
    effect: float = 1.0,
    seed: int = 0,
    only: Collection[str] = (),
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
    effect
        what the sampling variance of metrics that `spread` does not name is multiplied by
    seed
        of simulated noise; the same seed gives the same bits
    only
        the metrics that are wanted, of those that the score has; none = all

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
    normal_quantile(level)
    check_rows(rows)
    # The prediction whose correctness is the outcome is made already: all count as predicted 1.
    at = threshold if score == "positive" else 0.0
    asked = {*only, *(source for name in only for source in BELOW.get(name, ()))}
    found = spans(h, score, at, level, rows, spread or {}, seed, asked, effect)
    each = estimates_of(found, level, h)
    return {name: one for name, one in each.items() if not only or name in only}


def estimates_of(
    found: Mapping[str, tuple[Metric | GapMetric, Span]], level: float, h: Histogram
) -> dict[str, Estimate]:
    """Spans with their binning; metrics that constrain each other agree."""
    each = {
        name: estimate(span, binning(metric, span, h), metric.bounds, metric.scale, level)
        for name, (metric, span) in found.items()
    }
    for name, (metric, _) in found.items():
        if warning := metric.warning(h):
            each[name] = replace(each[name], warning=warning)
    return agreed(each, {name for name, (_, span) in found.items() if span.hidden})


def binning(metric: Metric | GapMetric, span: Span, *histograms: Histogram) -> float:
    """What buckets leave open of a metric, summed over histograms; NaN where it has no value."""
    if not math.isfinite(span.value):
        return math.nan
    return sum(metric.binning(h) for h in histograms)


def spans(
    h: Histogram,
    score: str,
    threshold: float,
    level: float,
    rows: str,
    spread: Mapping[str, float],
    seed: int,
    only: Collection[str] = (),
    effect: float = 1.0,
) -> dict[str, tuple[Metric | GapMetric, Span]]:
    """The metrics of `evaluate`, and their intervals without binning."""
    found: dict[str, tuple[Metric | GapMetric, Span]] = {}
    for name in SCORES[score]:
        if only and name not in only:
            continue
        metric = METRICS[name](threshold)
        variance = spread.get(name)
        if variance is None and effect > 1 and math.isfinite(metric.value(h)):
            variance = effect * rows_variance(metric, h)
        found[name] = metric, smooth_span(metric, h, level, rows, variance)
    wanted = {name: kind for name, kind in GAPS.items() if not only or name in only}
    if not wanted:
        return found
    simulated = simulate(h, seed)
    for name, kind in wanted.items():
        error = kind()
        found[name] = error, gap_span(error, h, simulated, level, rows, spread.get(name), effect)
    return found


def rows_variance(metric: Metric, h: Histogram) -> float:
    """Of a smooth metric, to first order, if each row is drawn independently of all others."""
    return float((monotone_counts(h) * metric.gradient(h) ** 2).sum())


def smooth_span(
    metric: Metric, h: Histogram, level: float, rows: str, spread: float | None = None
) -> Span:
    """Interval of a smooth metric from sampling and noise."""
    z = normal_quantile(level)
    value = metric.value(h)
    if not math.isfinite(value):
        return Span(value, *metric.bounds, math.nan, math.nan, False)
    if isinstance(metric, metrics.BalancedAccuracy) and spread is None:
        parts = [
            smooth_span(part(metric.threshold), h, level, rows)
            for part in (metrics.Recall, metrics.Specificity)
        ]
        both = _share_sum(parts[0], parts[1], 0.5)
        return both if both.firm else replace(both, low=metric.bounds[0], high=metric.bounds[1])
    if isinstance(metric, metrics.BrierUncertainty) and spread is None:
        return _uncertainty_span(
            smooth_span(metrics.Prevalence(metric.threshold), h, level, rows), value
        )
    weights = metric.denominators(h)
    sums = (weights * h.counts).sum(axis=(1, 2))
    firm = bool((sums > FIRM * h.noise_std(weights)).all())
    if isinstance(metric, RatioMetric):
        span = replace(_ratio_span(metric, h, z, rows, spread), firm=firm)
        return few_rows(span, metric, h, z, rows) if metric.name in _SKEWED else span
    if isinstance(metric, slope_intercept.Recalibration) and spread is None:
        span = slope_intercept.score_test_span(metric, h, level, rows)
        return span if firm else replace(span, low=-math.inf, high=math.inf, firm=False)
    gradient = metric.gradient(h)
    noise = float(h.noise_std(gradient))
    sampling = 0.0
    if rows == "new":
        sampling = math.sqrt(rows_variance(metric, h) if spread is None else spread)
    half = z * math.hypot(sampling, noise) if firm else math.inf
    span = Span(value, value - half, value + half, sampling, noise, firm)
    if isinstance(metric, metrics.MatthewsCorrelation) and firm and spread is None:
        return _correlation_span(span, metric, h, level, rows)
    return few_rows(span, metric, h, z, rows) if metric.name in _SKEWED else span


_RANKINGS = ("roc_auc", "confidence_auc", "average_precision")
_SKEWED = (*_RANKINGS, "brier", "log_loss")


def few_rows(span: Span, metric: Metric, h: Histogram, z: float, rows: str) -> Span:
    """The span, widened where few rows have an outcome, or few of a ranking are misplaced.

    By Wilson's interval of as many rows as give the same variance (Boyd et al. 2013 take one for
    average precision); of a ranking that is nearly perfect, of the rows of the rarer outcome.
    """
    least, total = float(h.counts.sum(axis=1).min()), float(h.counts.sum())
    lowest, reach = metric.bounds[0], metric.bounds[1] - metric.bounds[0]
    share, ranks = (span.value - lowest) / reach, metric.name in _RANKINGS
    misplaced = ranks and (1 - share) * least < ranking.MISPLACED
    if rows != "new" or not span.firm or (least >= FEW and not misplaced):
        return span
    trials = max(least if ranks else total, 1.0)
    inner = (min(max(share, 0.0), 1.0) * trials + 0.5) / (trials + 1)
    variance = max((span.sampling**2 + span.noise**2) / reach**2, 1e-12)
    most = 4 * trials if ranks else trials
    count = trials if misplaced else min(inner * (1 - inner) / variance, most)
    low, high = of_share(inner * count, count, np.zeros(3), z, rows)
    return replace(
        span,
        low=min(float(low) * reach + lowest, span.low),
        high=max(float(high) * reach + lowest, span.high),
    )


def _correlation_span(
    span: Span, metric: metrics.MatthewsCorrelation, h: Histogram, level: float, rows: str
) -> Span:
    """The hull with what recall, specificity and both predictive values say of it.

    Its square is (recall + specificity - 1) (precision + negative predictive value - 1), and both
    factors have its sign. The delta method sees no variance in a cell that happens to be empty.
    """
    ends = []
    for pair in (
        (metrics.Recall, metrics.Specificity),
        (metrics.Precision, metrics.NegativePredictiveValue),
    ):
        one, other = (smooth_span(part(metric.threshold), h, level, rows) for part in pair)
        both = _share_sum(one, other, 1.0)
        ends.append((both.low - 1, both.high - 1))
    low, high = (
        math.copysign(math.sqrt(a * b), a) if a * b > 0 else 0.0 for a, b in zip(*ends, strict=True)
    )
    return replace(span, low=min(low, span.low), high=max(high, span.high))


def _share_sum(one: Span, other: Span, weight: float) -> Span:
    """Weighted sum of two shares; an end that is cut at 0 or 1 may lie farther, so ends add up."""
    span = mover(one, other, weight * (one.value + other.value), (weight, weight))
    low, high = weight * (one.low + other.low), weight * (one.high + other.high)
    return replace(
        span,
        low=low if min(one.low, other.low) <= 0 else span.low,
        high=high if max(one.high, other.high) >= 1 else span.high,
    )


def _uncertainty_span(prevalence: Span, value: float) -> Span:
    """Of o (1 - o) from the interval of the prevalence o."""
    ends = [prevalence.low, prevalence.high]
    if ends[0] < 0.5 < ends[1]:
        ends.append(0.5)
    of = [o * (1 - o) for o in ends]
    slope = abs(1 - 2 * prevalence.value)
    spread = slope * prevalence.sampling, slope * prevalence.noise
    return replace(
        prevalence, value=value, low=min(of), high=max(of), sampling=spread[0], noise=spread[1]
    )


def _ratio_span(
    metric: RatioMetric, h: Histogram, z: float, rows: str, spread: float | None
) -> Span:
    top, bottom, *gradients = metric.ratio(h)
    value = top / bottom
    through = np.asarray(np.stack(gradients) @ h.root).reshape(2, -1)
    noise = _coefficients(through @ through.T) - metric.excess(h)
    sampling, trials = np.zeros(3), metric.trials(h)
    if rows == "new" and spread is not None:
        sampling[0] = spread * bottom**2
    elif rows == "new" and trials is not None:
        sampling[1:] = -trials / 2, -trials
    elif rows == "new":
        flat = np.stack(gradients).reshape(2, -1)
        sampling = _coefficients((flat * h.counts.ravel()) @ flat.T)
        sampling[0] += metric.unseen(h)
    if spread is None and trials is not None:
        unit = float(gradients[0].max())
        low, high = of_share(top, bottom, noise, z, rows, trials, unit)
    else:
        low, high = fieller(top, bottom, noise + sampling, z, metric.bounds)
    inside = float(np.clip(value, *metric.bounds))
    by_rows, by_noise = (math.sqrt(quadratic(v, inside)) / bottom for v in (sampling, noise))
    return Span(inside, float(low), float(high), by_rows, by_noise)


def _coefficients(covariance: Floats) -> Floats:
    """Of Var(top - t bottom), for `fieller`."""
    return np.array([covariance[0, 0], covariance[0, 1], covariance[1, 1]])
