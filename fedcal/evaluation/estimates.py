"""All metrics of one histogram, each with an interval.

The registry of metrics: their order is that of tables and files.

Two views of the same rows: two models, or one before and after its calibration.

Metrics of a release at a threshold of its score.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedcal.core.checks import check_kept, one_of
from fedcal.core.imports import registry
from fedcal.core.numerics import Floats
from fedcal.evaluation import intervals
from fedcal.evaluation.estimators import calibration, metrics
from fedcal.evaluation.estimators.calibration import ECES, ClasswiseEce, Ece
from fedcal.evaluation.estimators.metrics import Accuracy, Gap, Predictions, variant
from fedcal.evaluation.intervals import Estimate, IntervalOptions, Metric, Span
from fedcal.metrics.histogram import Histogram

_CONFIDENCE: Any = {"scores": ("confidence",)}
_CUT_LOSS: Any = {"least": metrics.LEAST, "bounds": (0.0, -math.log(metrics.LEAST))}

METRICS: dict[str, type[Metric]] = registry(
    *(metrics.Accuracy, metrics.Precision, metrics.Recall, metrics.Specificity),
    *(metrics.Prevalence, metrics.NetBenefit),
    *(metrics.RocAuc, variant(metrics.RocAuc, "confidence_auc", **_CONFIDENCE)),
    *(metrics.Gap, metrics.Brier, variant(metrics.Brier, "confidence_brier", **_CONFIDENCE)),
    *(metrics.LogLoss, variant(metrics.LogLoss, "log_loss_cut", **_CUT_LOSS)),
    variant(metrics.LogLoss, "confidence_log_loss", cut="confidence_log_loss_cut", **_CONFIDENCE),
    variant(metrics.LogLoss, "confidence_log_loss_cut", **_CONFIDENCE, **_CUT_LOSS),
    calibration.CalibrationSlope,
    variant(calibration.CalibrationSlope, "calibration_slope_cut", least=metrics.LEAST),
    calibration.CalibrationIntercept,
    variant(calibration.CalibrationIntercept, "calibration_intercept_cut", least=metrics.LEAST),
    *(Ece, ClasswiseEce),
)
"""Metrics of one histogram by name, in the order in which they are shown."""


SCORES = ("positive", "confidence")
"""Scores whose histogram is one. Of a confidence, outcome 1 means correct."""


def evaluate(
    h: Histogram,
    score: str,
    *,
    threshold: float = 0.5,
    level: float = 0.95,
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
    only
        names of the wanted metrics; none = all that the score has

    Returns
    -------
    dict[str, Estimate]
        by name of the metric
    """
    asked = IntervalOptions(level)
    for name in only:
        check_kept(name)
    metrics = metrics_of(score, threshold, {*only, *([Gap.name] if {*only} & {*ECES} else [])})
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
    for name in each.keys() & {*ECES}:
        if math.isfinite(each[name].value):
            each[name] = _above_gap(each[name], each.get(Gap.name), spans[name].hidden)
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


def evaluate_classes(histograms: Sequence[Histogram]) -> dict[str, Estimate]:
    """Return the classwise ECE, the mean over classes of the ECE, by its name.

    A row is in the histogram of every class, so their sampling errors depend on one another in a
    way that histograms do not show: their standard deviations are added up as if they were
    perfectly correlated. The noise of different histograms is independent.

    Parameters
    ----------
    histograms
        of class j: rows by the probability of j, with outcome 1 for the rows of class j
    """
    ece, asked = ClasswiseEce(), IntervalOptions()
    spans = [ece.span(h, replace(asked, what=f"class {j}")) for j, h in enumerate(histograms)]
    each = [(s.value, s.low, s.high, s.sampling) for s in spans]
    noise = math.hypot(*(s.noise for s in spans)) / len(spans)
    value, low, high, sampling = np.mean(each, axis=0).tolist()
    span = Span(value, low, high, sampling, noise, all(s.firm for s in spans))
    binning = float(np.mean([ece.binning(h) for h in histograms]))
    return {ece.name: intervals.estimate(span, binning, ece.bounds, ece.scale, asked.level)}


def compare(
    a: Histogram,
    b: Histogram,
    score: str,
    *,
    agreement: Floats | None = None,
    agreement_noise: float = 0.0,
    threshold: float = 0.5,
    only: Collection[str] = (),
) -> dict[str, Estimate]:
    """Return every metric of b less that of a, on the same rows.

    Two histograms do not show how the metrics of one row go together. Intervals join those of a
    and b (Zou & Donner 2008) as if their sampling errors were independent: right or too wide
    where they are positively correlated, as those of two models on the same rows are. Where a
    calibration error may be 0 the sign of its correlation is anybody's guess, and the difference
    of the far ends is taken. `agreement` makes the difference of accuracies properly paired. Values
    are differences of the two values that `evaluate` and `accuracies` give.

    Parameters
    ----------
    a, b
        rows by score and outcome; noise of the two independent
    score, threshold, only
        as in `evaluate`
    agreement
        (2, 2) rows by whether a is correct (0 = no) and whether b is
    agreement_noise
        standard deviation of the independent noise of each

    Returns
    -------
    dict[str, Estimate]
        metric -> difference
    """
    asked, metrics = IntervalOptions(), metrics_of(score, threshold, only)
    first, second = ({n: m.span(h, asked) for n, m in metrics.items()} for h in (a, b))
    one, two = (estimates_of(metrics, s, h, asked.level) for s, h in ((first, a), (second, b)))
    if agreement is not None:
        one["accuracy"], two["accuracy"] = accuracies(agreement, agreement_noise)
    differences = {}
    for name in [name for name in one if name in two]:
        metric, before, after = metrics[name], first[name], second[name]
        span = intervals.difference(before, after)
        if name in ECES and min(before.low, after.low) <= 0:
            span = replace(span, low=after.low - before.high, high=after.high - before.low)
        if name == "accuracy" and agreement is not None:
            span = _paired(np.asarray(agreement, np.float64), agreement_noise, asked)
        reach = metric.bounds[1] - metric.bounds[0]
        change = metric.estimate(span, asked.level, a, b, bounds=(-reach, reach))
        differences[name] = _as_printed(change, one[name], two[name])
    return differences


def accuracies(agreement: Floats, noise: float) -> tuple[Estimate, Estimate]:
    """Return the accuracies of both views from the paired rows, so that all three agree."""
    accuracy, root = Accuracy(0.0), np.array([[noise * math.sqrt(2)]])  # of two cells each
    edges, cells = np.array([0.0, 1.0]), np.asarray(agreement, np.float64)
    each = (Histogram(edges, of.sum(axis=0)[:, None], root) for of in (cells.T, cells))
    asked = IntervalOptions()
    first, second = (accuracy.estimate(accuracy.span(h, asked), asked.level, h) for h in each)
    return first, second


def _as_printed(change: Estimate, before: Estimate, after: Estimate) -> Estimate:
    """Return the difference of the two printed values, in its interval; drowned if either is."""
    value = after.value - before.value
    if not math.isfinite(value):
        return change
    return replace(
        change,
        value=value,
        low=min(change.low, value),
        high=max(change.high, value),
        drowned=change.drowned or before.drowned or after.drowned,
    )


def _paired(agreement: Floats, noise: float, asked: IntervalOptions) -> Span:
    """Return (only b correct - only a correct) / n, with its variance (McNemar 1947)."""
    only_b, only_a, total = agreement[0, 1], agreement[1, 0], float(agreement.sum())
    if total <= 0:
        return Span(math.nan, -1.0, 1.0, math.nan, math.nan, False)
    variance = noise**2 * np.array([2.0, 0.0, 4.0])
    moved = max(float(only_a + only_b), 0.0)
    difference = float(only_b - only_a)
    # of difference - t n; of few that moved two more (Agresti & Min 2005)
    variance += [moved + 2 * (moved < intervals.FEW), difference, total]
    low, high = intervals.fieller(difference, total, variance, asked.z, (-1.0, 1.0))
    value = difference / total
    by_rows = math.sqrt(max(moved / total - value**2, 0.0) / total)
    by_noise = noise * math.sqrt(2 + 4 * value**2) / total
    return Span(
        value, float(low), float(high), by_rows, by_noise, total > intervals.FIRM * 2 * noise
    )


class Flagged(Predictions):
    """Share of rows predicted positive."""

    name = "flagged"
    top, bottom = (0, 1, 0, 1), (1, 1, 1, 1)


def at_threshold(h: Histogram, threshold: float, *, level: float = 0.95) -> dict[str, Estimate]:
    """Return sensitivity, specificity, precision and fraction flagged of a `positive` score.

    Raises InputError if the threshold is not an edge of a bucket.
    """
    flagged = Flagged(threshold)
    only = ("recall", "specificity", "precision")
    estimates = evaluate(h, "positive", threshold=threshold, level=level, only=only)
    share = flagged.estimate(flagged.span(h, IntervalOptions(level)), level, h)
    return {**{name: estimates[name] for name in only}, flagged.name: share}
