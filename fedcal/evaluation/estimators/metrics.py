"""Metrics that are smooth functions of counts: shares of rows, Brier score, log loss.

Counts are used as they are released: sums of them are unbiased, and cutting single buckets at 0
would not be. Everything here is a function of a `Histogram`, with its gradient by the counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.evaluation.histogram import Histogram

LEAST = 1e-4
"""Probabilities are cut to [1e-4, 1 - 1e-4] before a logarithm is taken."""

_EDGE = 1e-9  # how far a threshold may lie from its edge


def edge_index(h: Histogram, threshold: float) -> int:
    """Index of the first bucket whose rows are predicted positive.

    Raises
    ------
    InputError
        If the threshold is no edge, or the last one (a score of 1 has no bucket of its own).
    """
    at = int(np.abs(h.edges[:-1] - threshold).argmin())
    if not abs(h.edges[at] - threshold) <= _EDGE:
        above = int(np.clip(np.searchsorted(h.edges, threshold), 1, h.buckets - 1))
        near = ", ".join(f"{edge:.6g}" for edge in h.edges[above - 1 : above + 1])
        raise InputError(
            f"threshold must be the lower edge of a bucket, got {threshold!r}; the nearest: {near}"
        )
    return at


@dataclass(frozen=True)
class Metric(ABC):
    """A smooth function of counts that does not change when all of them are doubled.

    Attributes
    ----------
    name
        in `METRICS` and in results
    bounds
        smallest and largest value
    scale
        a difference between two values that is large: noise of a quarter of it drowns the metric
    threshold
        rows with a score from here on are predicted positive; for the metrics of predictions
    """

    name: ClassVar[str]
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    scale: ClassVar[float] = 1.0
    threshold: float = 0.5

    @abstractmethod
    def value(self, h: Histogram) -> float:
        """The metric; NaN where a denominator is not above 0."""

    @abstractmethod
    def gradient(self, h: Histogram) -> Floats:
        """Its derivative by each count, (2, buckets)."""

    def binning(self, h: Histogram) -> float:
        """Half-width of what the same rows in finer buckets could show."""
        return 0.0

    def warning(self, h: Histogram) -> str:
        """Why the interval may be short; "" = it is not."""
        return ""

    @abstractmethod
    def denominators(self, h: Histogram) -> Floats:
        """Weights of the sums of counts that must lie above 0, (sums, 2, buckets)."""


class Ratio(NamedTuple):
    """A ratio of two functions of counts, and their gradients, (2, buckets)."""

    top: float
    bottom: float
    top_gradient: Floats
    bottom_gradient: Floats


class RatioMetric(Metric):
    """A metric top / bottom."""

    @abstractmethod
    def ratio(self, h: Histogram) -> Ratio:
        """Top and bottom."""

    def value(self, h: Histogram) -> float:
        """Top / bottom."""
        top, bottom, _, _ = self.ratio(h)
        return top / bottom if bottom > 0 else math.nan

    def gradient(self, h: Histogram) -> Floats:
        """Of the quotient."""
        _, bottom, top_gradient, bottom_gradient = self.ratio(h)
        return np.asarray((top_gradient - self.value(h) * bottom_gradient) / bottom)

    def trials(self, h: Histogram) -> float | None:
        """K, if the variance of top - t bottom by the choice of rows is K t (1 - t) at the truth.

        So it is for shares of rows, with K = bottom; None: take it from the counts.
        """
        return None

    def unseen(self, h: Histogram) -> float:
        """Variance of the top by rows that may be there and were not drawn, where few were."""
        return 0.0

    def excess(self, h: Histogram) -> Floats:
        """How much too large the noise variance of top - t bottom by the gradients is on average.

        Noisy gradients are too long. Coefficients of 1, -2 t and t**2, (3,).
        """
        return np.zeros(3)

    def denominators(self, h: Histogram) -> Floats:
        """The bottom, where it is a sum of counts."""
        return self.ratio(h).bottom_gradient[None]


class LinearRatio(RatioMetric):
    """A ratio of two weighted sums of counts."""

    @abstractmethod
    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """Of the top and of the bottom, both (2, buckets)."""

    def ratio(self, h: Histogram) -> Ratio:
        """The two sums."""
        top, bottom = self.weights(h)
        return Ratio(float((top * h.counts).sum()), float((bottom * h.counts).sum()), top, bottom)


class Predictions(LinearRatio):
    """A ratio of sums over the four cells of a 2 x 2 table of outcome and prediction.

    Attributes
    ----------
    top, bottom
        which cells count: true negatives, false positives, false negatives, true positives
    """

    top: ClassVar[tuple[float, float, float, float]]
    bottom: ClassVar[tuple[float, float, float, float]]

    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """Cells of the two sums."""
        at = edge_index(h, self.threshold)
        return spread_cells(h, at, self.top), spread_cells(h, at, self.bottom)

    def trials(self, h: Histogram) -> float | None:
        """The rows that the top is a share of."""
        return self.ratio(h).bottom


def spread_cells(h: Histogram, at: int, cells: tuple[float, float, float, float]) -> Floats:
    """Weights of counts, (2, buckets), from those of the cells (tn, fp, fn, tp)."""
    positive = np.arange(h.buckets) >= at
    tn, fp, fn, tp = cells
    return np.stack([np.where(positive, fp, tn), np.where(positive, tp, fn)])


class Accuracy(Predictions):
    """Share of rows whose prediction is their outcome; at threshold 0 the share of outcome 1."""

    name = "accuracy"
    top, bottom = (1, 0, 0, 1), (1, 1, 1, 1)


class Precision(Predictions):
    """Share of outcome 1 among the rows predicted positive."""

    name = "precision"
    top, bottom = (0, 0, 0, 1), (0, 1, 0, 1)


class Recall(Predictions):
    """Share of predicted positives among the rows of outcome 1."""

    name = "recall"
    top, bottom = (0, 0, 0, 1), (0, 0, 1, 1)


class Specificity(Predictions):
    """Share of predicted negatives among the rows of outcome 0."""

    name = "specificity"
    top, bottom = (1, 0, 0, 0), (1, 1, 0, 0)


class NegativePredictiveValue(Predictions):
    """Share of outcome 0 among the rows predicted negative; for the interval of `mcc`."""

    name = "negative_predictive_value"
    top, bottom = (1, 0, 0, 0), (1, 0, 1, 0)


class F1(Predictions):
    """Harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn)."""

    name = "f1"
    top, bottom = (0, 0, 0, 2), (0, 1, 1, 2)

    def trials(self, h: Histogram) -> float | None:
        """Twice the rows m = tp + fp + fn, of which tp are a share j with F1 = t = 2 j / (1 + j).

        2 tp - t (m + tp) has the variance m j (1 - j) (2 - t)**2 = 2 m t (1 - t).
        """
        top, bottom, _, _ = self.ratio(h)
        return 2 * bottom - top


class Prevalence(Predictions):
    """Share of rows of outcome 1."""

    name = "prevalence"
    top, bottom = (0, 0, 1, 1), (1, 1, 1, 1)


class NetBenefit(LinearRatio):
    """(tp - fp t / (1 - t)) / n at threshold t (Vickers & Elkin 2006)."""

    name = "net_benefit"
    bounds = (-math.inf, 1.0)

    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """True positives, less false ones at the odds of the threshold."""
        at = edge_index(h, self.threshold)
        odds = h.edges[at] / (1 - h.edges[at])
        return spread_cells(h, at, (0, -odds, 0, 1)), np.ones_like(h.counts)

    def unseen(self, h: Histogram) -> float:
        """Two rows more of each kind that counts, as in the interval of Agresti & Coull 1998."""
        kinds = np.unique(self.weights(h)[0])
        return float(2 * np.square(kinds).sum())


@dataclass(frozen=True)
class Cells(Metric):
    """A smooth function of the cells (tn, fp, fn, tp)."""

    @abstractmethod
    def of_cells(self, cells: Floats) -> tuple[float, Floats]:
        """The metric and its derivative by the four cells, (4,)."""

    def _cells(self, h: Histogram) -> tuple[int, Floats]:
        at = edge_index(h, self.threshold)
        negative, positive = h.counts[:, :at].sum(axis=1), h.counts[:, at:].sum(axis=1)
        return at, np.array([negative[0], positive[0], negative[1], positive[1]])

    def value(self, h: Histogram) -> float:
        """From the four cells."""
        _, cells = self._cells(h)
        margins = (self.denominators(h) * h.counts).sum(axis=(1, 2))
        return self.of_cells(cells)[0] if margins.min() > 0 else math.nan

    def gradient(self, h: Histogram) -> Floats:
        """Each count's is its cell's."""
        at, cells = self._cells(h)
        tn, fp, fn, tp = self.of_cells(cells)[1]
        return spread_cells(h, at, (tn, fp, fn, tp))

    def denominators(self, h: Histogram) -> Floats:
        """Rows of each outcome."""
        at = edge_index(h, self.threshold)
        return np.stack([spread_cells(h, at, (1, 1, 0, 0)), spread_cells(h, at, (0, 0, 1, 1))])


class BalancedAccuracy(Cells):
    """Mean of recall and specificity."""

    name = "balanced_accuracy"
    scale = 0.5

    def of_cells(self, cells: Floats) -> tuple[float, Floats]:
        """(tp / P + tn / N) / 2."""
        tn, fp, fn, tp = cells
        n, p = tn + fp, fn + tp
        by_cell = np.array([fp / n**2, -tn / n**2, -tp / p**2, fn / p**2]) / 2
        return float(tp / p + tn / n) / 2, by_cell


class MatthewsCorrelation(Cells):
    """Correlation of outcome and prediction (Matthews 1975)."""

    name = "mcc"
    bounds = (-1.0, 1.0)

    def of_cells(self, cells: Floats) -> tuple[float, Floats]:
        """(tp tn - fp fn) / sqrt(P N PP PN)."""
        tn, fp, fn, tp = cells
        p, n, pp, pn = fn + tp, tn + fp, tp + fp, tn + fn
        root = math.sqrt(p * n) * math.sqrt(pp * pn)
        value = float((tp * tn - fp * fn) / root)
        by_cell = np.array([tp, -fn, -fp, tn]) / root
        margins = np.array([[n, pn], [n, pp], [p, pn], [p, pp]])
        by_cell -= value / 2 * (1 / margins).sum(axis=1)
        return value, by_cell

    def denominators(self, h: Histogram) -> Floats:
        """The four margins."""
        at = edge_index(h, self.threshold)
        columns = [spread_cells(h, at, (0, 1, 0, 1)), spread_cells(h, at, (1, 0, 1, 0))]
        return np.concatenate([super().denominators(h), columns])


class MeanScore(LinearRatio):
    """A mean over rows of a function of score and outcome, read at the middles of buckets."""

    @staticmethod
    @abstractmethod
    def at(scores: Floats) -> Floats:
        """The function at scores for outcome 0 and 1, (buckets,) -> (2, buckets); monotone."""

    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """The function at the middles, and 1."""
        return self.at(h.middles), np.ones_like(h.counts)

    def binning(self, h: Histogram) -> float:
        """Mean over rows of the larger distance from the middle's to an end's value."""
        return mean_reach(h, self.at)


def mean_reach(h: Histogram, at: Callable[[Floats], Floats]) -> float:
    """Mean over rows of how far a function, monotone in each bucket, may be from its middle's."""
    middle = at(h.middles)
    reach = np.maximum(np.abs(at(h.edges[:-1]) - middle), np.abs(at(h.edges[1:]) - middle))
    rows = h.counts.sum()
    return float(max((reach * h.counts).sum(), 0.0) / rows) if rows > 0 else math.nan


class Brier(MeanScore):
    """Mean of (score - outcome)**2 (Brier 1950, the form of two classes, as in scikit-learn)."""

    name = "brier"
    scale = 0.25

    @staticmethod
    def at(scores: Floats) -> Floats:
        """Squares."""
        return np.stack([scores**2, (1 - scores) ** 2])


class LogLoss(MeanScore):
    """Mean of -ln of the outcome's probability, with scores cut to [1e-4, 1 - 1e-4].

    Without the cut one row could be infinite, and its bucket could not bound it.
    """

    name = "log_loss"
    bounds = (0.0, -math.log(LEAST))
    scale = math.log(2)

    @staticmethod
    def at(scores: Floats) -> Floats:
        """Logarithms."""
        cut = np.clip(scores, LEAST, 1 - LEAST)
        return -np.log(np.stack([1 - cut, cut]))


class Confidence(MeanScore):
    """Mean score."""

    name = "confidence"

    @staticmethod
    def at(scores: Floats) -> Floats:
        """The score, whatever the outcome."""
        return np.stack([scores, scores])


class Gap(MeanScore):
    """Mean score minus the share of outcome 1: below 0 the model predicts too low."""

    name = "gap"
    bounds = (-1.0, 1.0)
    scale = 0.4

    @staticmethod
    def at(scores: Floats) -> Floats:
        """Score - outcome."""
        return np.stack([scores, scores - 1])


class BrierUncertainty(Cells):
    """Brier score of the prevalence as everybody's score, o (1 - o) (Murphy 1973)."""

    name = "brier_uncertainty"
    bounds = (0.0, 0.25)
    scale = 0.25

    def of_cells(self, cells: Floats) -> tuple[float, Floats]:
        """P N / (P + N)**2."""
        tn, fp, fn, tp = cells
        n, p = tn + fp, fn + tp
        rows = n + p
        value = float(p * n / rows**2)
        by_n, by_p = p / rows**2 - 2 * value / rows, n / rows**2 - 2 * value / rows
        return value, np.array([by_n, by_n, by_p, by_p])
