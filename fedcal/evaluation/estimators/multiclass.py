"""Metrics over classes: from one histogram a class (score `classes`), or a confusion matrix.

Means over classes run over those that surely have rows (see `FIRM`); without noise these are the
classes with rows, as in scikit-learn.

A row is in the histogram of every class, so their sampling errors depend on one another in a way
that histograms do not show. Standard deviations of sampling are therefore added up as if they
were perfectly correlated (for two classes they are; else intervals are too wide rather than too
narrow). The noise of different histograms is independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.calibration import Ece
from fedcal.evaluation.estimators.metrics import Metric
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.estimators.ranking import AveragePrecision, RocAuc
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.gap_intervals import gap_span, simulate
from fedcal.evaluation.intervals.intervals import (
    FIRM,
    Estimate,
    Span,
    check_rows,
    estimate,
    normal_quantile,
    of_share,
)


def evaluate_classes(
    histograms: Sequence[Histogram],
    *,
    level: float = 0.95,
    rows: str = "new",
    seed: int = 0,
) -> dict[str, Estimate]:
    """Macro and weighted ranking metrics, and the classwise ECE.

    Parameters
    ----------
    histograms
        of class j: rows by the probability of j, with outcome 1 for the rows of class j
    level, rows, seed
        as of `evaluate`

    Returns
    -------
    dict[str, Estimate]
        macro_roc_auc, weighted_roc_auc, macro_average_precision, weighted_average_precision
        (weighted by rows of the class), classwise_ece (the mean over classes of the ECE)
    """
    check_rows(rows)
    z = normal_quantile(level)
    if not histograms:
        raise InputError("metrics of classes need the histogram of at least one class")
    found = {}
    for kind in (RocAuc, AveragePrecision):
        metric = kind()
        used = [h for h in histograms if _firm(metric, h)]
        for weighted in (False, True):
            name = f"{'weighted' if weighted else 'macro'}_{metric.name}"
            span, binning = _mean(metric, used, weighted, rows, z)
            found[name] = estimate(span, binning, metric.bounds, metric.scale, level)
    ece = Ece()
    parts = [
        gap_span(ece, h, simulate(h, seed, f"class {j}"), level, rows)
        for j, h in enumerate(histograms)
    ]
    value, low, high, sampling, _ = np.mean(
        [(s.value, s.low, s.high, s.sampling, s.noise) for s in parts], axis=0
    )
    noise = math.sqrt(sum(s.noise**2 for s in parts)) / len(parts)
    span = Span(
        float(value), float(low), float(high), float(sampling), noise, all(s.firm for s in parts)
    )
    binning = float(np.mean([ece.binning(h) for h in histograms]))
    found["classwise_ece"] = estimate(span, binning, ece.bounds, ece.scale, level)
    return found


def _firm(metric: Metric, h: Histogram) -> bool:
    weights = metric.denominators(h)
    return bool(((weights * h.counts).sum(axis=(1, 2)) > FIRM * h.noise_std(weights)).all())


def _mean(
    metric: Metric, histograms: Sequence[Histogram], weighted: bool, rows: str, z: float
) -> tuple[Span, float]:
    """A mean over classes and its binning; weights by rows of a class are uncertain too."""
    if not histograms:
        return Span(math.nan, *metric.bounds, math.nan, math.nan, False), math.nan
    values = np.array([metric.value(h) for h in histograms])
    sizes = np.array([h.counts[1].sum() if weighted else 1.0 for h in histograms])
    weights = sizes / sizes.sum()
    value = float(weights @ values)
    sampling, noise = 0.0, 0.0
    for h, weight, own in zip(histograms, weights, values, strict=True):
        gradient = weight * metric.gradient(h)
        if weighted:
            gradient[1] += (own - value) / sizes.sum()
        noise += float(h.noise_std(gradient)) ** 2
        counts = monotone_counts(h)
        mean = float((counts * gradient).sum())
        square = float((counts * gradient**2).sum())
        sampling += math.sqrt(max(square - mean**2 / float(counts.sum()), 0.0))
    noise, sampling = math.sqrt(noise), sampling if rows == "new" else 0.0
    half = z * math.hypot(sampling, noise)
    binning = float(weights @ [metric.binning(h) for h in histograms])
    return Span(value, value - half, value + half, sampling, noise), binning


class _Mean(NamedTuple):
    """A metric of a confusion matrix, and its derivative by the cells."""

    value: float
    gradient: Floats
    firm: bool = True


def evaluate_confusion(
    counts: Floats, noise: float = 0.0, *, level: float = 0.95, rows: str = "new"
) -> dict[str, Estimate]:
    """Metrics of a confusion matrix.

    Parameters
    ----------
    counts
        (classes, classes) rows by class and by predicted class, as released
    noise
        standard deviation of the independent noise of each
    level, rows
        as of `evaluate`

    Returns
    -------
    dict[str, Estimate]
        accuracy, balanced_accuracy (the macro recall), macro_precision (0 for a class that is
        never predicted, as in scikit-learn), macro_f1, mcc (Gorodkin 2004)
    """
    check_rows(rows)
    z = normal_quantile(level)
    c = np.asarray(counts, np.float64)
    if c.ndim != 2 or c.shape[0] != c.shape[1] or len(c) < 2 or not np.isfinite(c).all():
        raise InputError(f"a confusion matrix must be finite and square, got shape {c.shape}")
    found = {"accuracy": estimate(_accuracy(c, noise, rows, z), 0.0, (0.0, 1.0), 1.0, level)}
    wanted = {"balanced_accuracy": _recall, "macro_precision": _precision, "macro_f1": _f1}
    for name, metric in {**wanted, "mcc": _correlation}.items():
        value, gradient, firm = metric(c, noise)
        by_noise = noise * float(np.linalg.norm(gradient))
        by_rows = 0.0
        if rows == "new":
            by_rows = math.sqrt(float((np.maximum(c, 0.0) * gradient**2).sum()))
        half = z * math.hypot(by_noise, by_rows) if firm else math.inf
        span = Span(value, value - half, value + half, by_rows, by_noise, firm)
        bounds = (-1.0, 1.0) if name == "mcc" else (0.0, 1.0)
        found[name] = estimate(span, 0.0, bounds, 1.0, level)
    return found


def _accuracy(c: Floats, noise: float, rows: str, z: float) -> Span:
    right, total = float(np.trace(c)), float(c.sum())
    variance = noise**2 * np.array([len(c), len(c), c.size], np.float64)
    if total <= 0:
        return Span(math.nan, 0.0, 1.0, math.nan, math.nan, False)
    low, high = of_share(right, total, variance, z, rows)
    value = right / total
    by_rows = math.sqrt(max(value * (1 - value), 0.0) / total) if rows == "new" else 0.0
    by_noise = noise * math.sqrt(len(c) * (1 - 2 * value) + c.size * value**2) / total
    return Span(value, float(low), float(high), by_rows, by_noise, total > FIRM * noise * len(c))


def _present(c: Floats, noise: float) -> tuple[Floats, float]:
    """Classes that surely have rows, as 0 and 1, and how many."""
    found = (c.sum(axis=1) > FIRM * noise * math.sqrt(len(c))).astype(np.float64)
    return found, max(float(found.sum()), 1.0)


def _shares(
    c: Floats, noise: float, bottom: Floats, by_row: float, by_column: float, twice: float
) -> _Mean:
    """Mean over present classes of twice * c_jj / bottom_j, whose bottom sums row and column j."""
    present, number = _present(c, noise)
    if not present.any():
        return _Mean(math.nan, np.zeros_like(c), False)
    size = noise * math.sqrt(len(c) * (by_row**2 + by_column**2))
    known = present * (bottom > max(FIRM * size, 0.0))
    safe = np.where(known > 0, bottom, 1.0)
    share = known * twice * np.diag(c) / safe
    slope = share / safe / number
    gradient = np.diag(known * twice / safe / number)
    gradient -= by_row * slope[:, None] + by_column * slope[None, :]
    return _Mean(
        float(share.sum() / number), gradient, noise == 0 or bool((known == present).all())
    )


def _recall(c: Floats, noise: float) -> _Mean:
    return _shares(c, noise, c.sum(axis=1), 1.0, 0.0, 1.0)


def _precision(c: Floats, noise: float) -> _Mean:
    return _shares(c, noise, c.sum(axis=0), 0.0, 1.0, 1.0)


def _f1(c: Floats, noise: float) -> _Mean:
    return _shares(c, noise, c.sum(axis=0) + c.sum(axis=1), 1.0, 1.0, 2.0)


def _correlation(c: Floats, noise: float) -> _Mean:
    total, right = float(c.sum()), float(np.trace(c))
    true, predicted = c.sum(axis=1), c.sum(axis=0)
    spread_true, spread_predicted = (total**2 - float(x @ x) for x in (true, predicted))
    if total <= 0 or min(spread_true, spread_predicted) <= 0:
        return _Mean(math.nan, np.zeros_like(c), False)
    root = math.sqrt(spread_true) * math.sqrt(spread_predicted)
    value = (right * total - float(true @ predicted)) / root
    top = np.eye(len(c)) * total + right - predicted[:, None] - true[None, :]
    by_true = (total - true) / spread_true
    by_predicted = (total - predicted) / spread_predicted
    gradient = top / root - value * (by_true[:, None] + by_predicted[None, :])
    margin = FIRM * noise * 2 * math.sqrt(len(c)) * total  # of the sums of squares, to first order
    return _Mean(value, gradient, min(spread_true, spread_predicted) > margin)
