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
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.registry import registry
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.base import Asked, Described
from fedcal.evaluation.estimators.calibration import Ece
from fedcal.evaluation.estimators.metrics import (
    Accuracy,
    BalancedAccuracy,
    MatthewsCorrelation,
    SmoothMetric,
)
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.estimators.ranking import AveragePrecision, RocAuc
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import FIRM, Estimate, Span, estimate, of_share


class ClassMetric(Described):
    """A metric of several classes, read from one histogram of each (score `classes`)."""

    @abstractmethod
    def span(self, histograms: Sequence[Histogram], asked: Asked) -> tuple[Span, float]:
        """Return the interval from sampling and noise, and the binning."""


class MeanOfClasses(ClassMetric):
    """Mean over classes of a ranking metric.

    Attributes
    ----------
    of
        the metric of one class
    weighted
        whether classes count by their rows, which are uncertain too
    """

    of: ClassVar[type[SmoothMetric]]
    weighted: ClassVar[bool] = False

    def span(self, histograms: Sequence[Histogram], asked: Asked) -> tuple[Span, float]:
        """Return the mean over the classes that surely have rows of either outcome."""
        metric = self.of()
        used = [h for h in histograms if metric.firm(h)]
        if not used:
            return metric.no_span(), math.nan
        values = np.array([metric.value(h) for h in used])
        sizes = np.array([h.counts[1].sum() if self.weighted else 1.0 for h in used])
        weights = sizes / sizes.sum()
        value = float(weights @ values)
        sampling, noise = 0.0, 0.0
        for h, weight, own in zip(used, weights, values, strict=True):
            gradient = weight * metric.gradient(h)
            if self.weighted:
                gradient[1] += (own - value) / sizes.sum()
            noise += float(h.noise_std(gradient)) ** 2
            counts = monotone_counts(h)
            mean = float((counts * gradient).sum())
            square = float((counts * gradient**2).sum())
            sampling += math.sqrt(max(square - mean**2 / float(counts.sum()), 0.0))
        noise, sampling = math.sqrt(noise), sampling if asked.rows == "new" else 0.0
        half = asked.z * math.hypot(sampling, noise)
        binning = float(weights @ [metric.binning(h) for h in used])
        return Span(value, value - half, value + half, sampling, noise), binning


class MacroRocAuc(MeanOfClasses):
    """Mean ROC AUC of each class against all others."""

    name = "macro_roc_auc"
    heading = "ROC AUC, macro"
    of, scale = RocAuc, RocAuc.scale


class WeightedRocAuc(MacroRocAuc):
    """Mean ROC AUC of each class against all others, weighted by the class's rows."""

    name = "weighted_roc_auc"
    heading = "ROC AUC, weighted"
    weighted = True


class MacroAveragePrecision(MeanOfClasses):
    """Mean average precision of each class against all others."""

    name = "macro_average_precision"
    heading = "average precision, macro"
    of = AveragePrecision


class WeightedAveragePrecision(MacroAveragePrecision):
    """Mean average precision of each class against all others, weighted by the class's rows."""

    name = "weighted_average_precision"
    heading = "average precision, weighted"
    weighted = True


class ClasswiseEce(ClassMetric):
    """Mean over classes of the ECE."""

    name = "classwise_ece"
    heading = "classwise ECE, %"
    scale = Ece.scale

    def span(self, histograms: Sequence[Histogram], asked: Asked) -> tuple[Span, float]:
        """Return the means of values, ends and sampling; noise is independent."""
        ece = Ece()
        parts = [ece.span(h, replace(asked, what=f"class {j}")) for j, h in enumerate(histograms)]
        value, low, high, sampling = np.mean(
            [(s.value, s.low, s.high, s.sampling) for s in parts], axis=0
        ).tolist()
        noise = math.sqrt(sum(s.noise**2 for s in parts)) / len(parts)
        span = Span(value, low, high, sampling, noise, all(s.firm for s in parts))
        return span, float(np.mean([ece.binning(h) for h in histograms]))


class _Mean(NamedTuple):
    """A metric of a confusion matrix, and its derivative by the cells."""

    value: float
    gradient: Floats
    firm: bool = True


class ConfusionMetric(Described):
    """A metric of several classes, read from a confusion matrix."""

    @abstractmethod
    def span(self, c: Floats, noise: float, asked: Asked) -> Span:
        """Return the interval for rows by class and predicted class, (c, c); `noise` is a std."""


class CellMetric(ConfusionMetric):
    """Metric whose interval follows from its gradient by the cells."""

    @abstractmethod
    def mean(self, c: Floats, noise: float) -> _Mean:
        """Return the metric's value and gradient by the cells, (c, c)."""

    def span(self, c: Floats, noise: float, asked: Asked) -> Span:
        """Return the interval to first order."""
        value, gradient, firm = self.mean(c, noise)
        by_noise = noise * float(np.linalg.norm(gradient))
        by_rows = 0.0
        if asked.rows == "new":
            by_rows = math.sqrt(float((np.maximum(c, 0.0) * gradient**2).sum()))
        half = asked.z * math.hypot(by_noise, by_rows) if firm else math.inf
        return Span(value, value - half, value + half, by_rows, by_noise, firm)


class ClassMean(CellMetric):
    """Mean over present classes of twice c_jj / (a row j + b column j), twice = a + b.

    Attributes
    ----------
    by_row, by_column
        a and b
    """

    by_row: ClassVar[float]
    by_column: ClassVar[float]

    def mean(self, c: Floats, noise: float) -> _Mean:
        """Return the mean over classes that surely have rows; 0 for a class never predicted."""
        present = (c.sum(axis=1) > FIRM * noise * math.sqrt(len(c))).astype(np.float64)
        number = float(present.sum())
        if not number:
            return _Mean(math.nan, np.zeros_like(c), False)
        bottom = self.by_column * c.sum(axis=0) + self.by_row * c.sum(axis=1)
        size = noise * math.sqrt(len(c) * (self.by_row**2 + self.by_column**2))
        known = present * (bottom > max(FIRM * size, 0.0))
        safe, twice = np.where(known > 0, bottom, 1.0), self.by_row + self.by_column
        share = known * twice * np.diag(c) / safe
        slope = share / safe / number
        gradient = np.diag(known * twice / safe / number)
        gradient -= self.by_row * slope[:, None] + self.by_column * slope[None, :]
        firm = noise == 0 or bool((known == present).all())
        return _Mean(float(share.sum() / number), gradient, firm)


class ClassAccuracy(ConfusionMetric):
    """Share of rows on the diagonal."""

    name = Accuracy.name
    heading = Accuracy.heading

    def span(self, c: Floats, noise: float, asked: Asked) -> Span:
        """Return Wilson's interval, with the noise of all cells."""
        right, total = float(np.trace(c)), float(c.sum())
        if total <= 0:
            return Span(math.nan, 0.0, 1.0, math.nan, math.nan, False)
        variance = noise**2 * np.array([len(c), len(c), c.size], np.float64)
        low, high = of_share(right, total, variance, asked.z, asked.rows)
        value = right / total
        by_rows = math.sqrt(max(value * (1 - value), 0.0) / total) if asked.rows == "new" else 0.0
        by_noise = noise * math.sqrt(len(c) * (1 - 2 * value) + c.size * value**2) / total
        firm = total > FIRM * noise * len(c)
        return Span(value, float(low), float(high), by_rows, by_noise, firm)


class MacroRecall(ClassMean):
    """Balanced accuracy: the mean recall of classes."""

    name = "balanced_accuracy"
    heading = BalancedAccuracy.heading
    by_row, by_column = 1.0, 0.0


class MacroPrecision(ClassMean):
    """Mean precision of classes; 0 for a class that is never predicted, as in scikit-learn."""

    name = "macro_precision"
    heading = "precision, macro, %"
    by_row, by_column = 0.0, 1.0


class MacroF1(ClassMean):
    """Unweighted mean of the classes' F1."""

    name = "macro_f1"
    heading = "F1, macro"
    by_row, by_column = 1.0, 1.0


class ClassCorrelation(CellMetric):
    """Correlation of label and prediction over several classes (Gorodkin 2004)."""

    name = MatthewsCorrelation.name
    heading = MatthewsCorrelation.heading
    bounds = (-1.0, 1.0)

    def mean(self, c: Floats, noise: float) -> _Mean:
        """Return the correlation from the margins; NaN if labels or predictions have one class."""
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
        margin = (
            FIRM * noise * 2 * math.sqrt(len(c)) * total
        )  # of the sums of squares, to first order
        return _Mean(value, gradient, min(spread_true, spread_predicted) > margin)


CLASS_METRICS: dict[str, type[ClassMetric]] = registry(
    MacroRocAuc, WeightedRocAuc, MacroAveragePrecision, WeightedAveragePrecision, ClasswiseEce
)
"""Metrics read from one histogram of each class, by name."""

CONFUSION_METRICS: dict[str, type[ConfusionMetric]] = registry(
    ClassAccuracy, MacroRecall, MacroPrecision, MacroF1, ClassCorrelation
)
"""Metrics read from a confusion matrix, by name."""


def evaluate_classes(
    histograms: Sequence[Histogram], *, level: float = 0.95, rows: str = "new", seed: int = 0
) -> dict[str, Estimate]:
    """Return macro and weighted ranking metrics, and the classwise ECE.

    Parameters
    ----------
    histograms
        of class j: rows by the probability of j, with outcome 1 for the rows of class j
    level, rows, seed
        as in `evaluate`

    Returns
    -------
    dict[str, Estimate]
        by name of `CLASS_METRICS`; weighted ones by rows of the class
    """
    asked = Asked(level, rows, seed=seed)
    if not histograms:
        raise InputError("metrics of classes need the histogram of at least one class")
    estimates = {}
    for name, kind in CLASS_METRICS.items():
        metric = kind()
        span, binning = metric.span(histograms, asked)
        estimates[name] = estimate(span, binning, metric.bounds, metric.scale, level)
    return estimates


def evaluate_confusion(
    counts: Floats, noise: float = 0.0, *, level: float = 0.95, rows: str = "new"
) -> dict[str, Estimate]:
    """Return the metrics of a confusion matrix.

    Parameters
    ----------
    counts
        (classes, classes) rows by class and by predicted class, as released
    noise
        standard deviation of the independent noise of each
    level, rows
        as in `evaluate`

    Returns
    -------
    dict[str, Estimate]
        by name of `CONFUSION_METRICS`
    """
    asked = Asked(level, rows)
    c = np.asarray(counts, np.float64)
    if c.ndim != 2 or c.shape[0] != c.shape[1] or len(c) < 2 or not np.isfinite(c).all():
        raise InputError(f"a confusion matrix must be finite and square, got shape {c.shape}")
    estimates = {}
    for name, kind in CONFUSION_METRICS.items():
        metric = kind()
        span = metric.span(c, noise, asked)
        estimates[name] = estimate(span, 0.0, metric.bounds, metric.scale, level)
    return estimates
