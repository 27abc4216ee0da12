"""Metrics that are smooth functions of counts: fractions of rows, Brier score, log loss.

Counts are used as they are released: sums of them are unbiased, and cutting single buckets at 0
would not be. Everything here is a function of a `Histogram`, with its gradient by the counts.
"""

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.numerics import FLOOR, Floats
from fedcal.evaluation import intervals
from fedcal.evaluation.intervals import FEW, FIRM, IntervalOptions, Metric, Span, fieller
from fedcal.metrics.histogram import Histogram, monotone_counts

FEW_MISRANKED_ROWS = 5.0
"""Rows of the rarer outcome, in so many of which the variance of a ranking rests on few rows."""

LEAST = 1e-4
"""Scores are cut to [1e-4, 1 - 1e-4] where their tails were not counted by logarithm."""

_EDGE = 1e-9  # how far a threshold may lie from its edge


def edge_index(h: Histogram, threshold: float) -> int:
    """Return the index of the first bucket whose rows are predicted positive.

    Raises InputError if the threshold is not an edge, or is the last one (a score of 1 does not
    have a bucket of its own).
    """
    at = int(np.abs(h.edges[:-1] - threshold).argmin())
    if not abs(h.edges[at] - threshold) <= _EDGE:
        above = int(np.clip(np.searchsorted(h.edges, threshold), 1, h.buckets - 1))
        near = ", ".join(f"{edge:.6g}" for edge in h.edges[above - 1 : above + 1])
        raise InputError(
            f"threshold must be the lower edge of a bucket, got {threshold!r}; the nearest: {near}"
        )
    return at


def variant(metric: type[Metric], name: str, **attributes: Any) -> type[Metric]:
    """Return a metric with another name and other class attributes, and no metric of cut scores."""
    return type(metric.__name__, (metric,), {"name": name, "cut": "", **attributes})


class SmoothMetric(Metric):
    """A smooth function of counts that does not change when all of them are doubled.

    Attributes
    ----------
    skewed
        whether its interval is widened where few rows have an outcome
    ranking
        whether it ranks rows, and its interval is widened where few are misplaced
    """

    skewed: ClassVar[bool] = False
    ranking: ClassVar[bool] = False

    @abstractmethod
    def gradient(self, h: Histogram) -> Floats:
        """Return the metric's derivative by each count, (2, buckets)."""

    def denominators(self, h: Histogram) -> Floats:
        """Return the weights of the sums of counts that must lie above 0, (sums, 2, buckets).

        Rows of each outcome, unless a metric overrides it.
        """
        return np.repeat(np.eye(2)[:, :, None], h.buckets, axis=2)

    def firm(self, h: Histogram) -> bool:
        """Return whether all denominators stand out from their noise."""
        weights = self.denominators(h)
        sums = (weights * h.counts).sum(axis=(1, 2))
        return bool((sums > FIRM * h.noise_std(weights)).all())

    def span(self, h: Histogram, asked: IntervalOptions) -> Span:
        """Return the interval from sampling and noise, without binning."""
        h = (self.cut and h.parted) or h
        value = self.value(h)
        if not math.isfinite(value) or (self.cut and not h.nodes):
            return self.no_span()
        return self.span_of_rows(h, value, asked)

    def span_of_rows(self, h: Histogram, value: float, asked: IntervalOptions) -> Span:
        """Return the interval of a finite value, to first order by the gradient."""
        gradient, firm = self.gradient(h), self.firm(h)
        noise = float(h.noise_std(gradient))
        widened = noise * h.widening(gradient, asked.level)
        sampling = math.sqrt(float((monotone_counts(h) * gradient**2).sum()))
        half = asked.z * math.hypot(sampling, widened) if firm else math.inf
        span = Span(value, value - half, value + half, sampling, noise, firm)
        return self.for_few_rows(span, h, asked)

    def for_few_rows(self, span: Span, h: Histogram, asked: IntervalOptions) -> Span:
        """Return the span, widened if few rows have an outcome, or a ranking misplaces few.

        It is Wilson's interval of as many rows as give the same variance; for a nearly perfect
        ranking, of the rows of the rarer outcome.
        """
        least, total = float(h.counts.sum(axis=1).min()), float(h.counts.sum())
        lowest, reach = self.bounds[0], self.bounds[1] - self.bounds[0]
        share = (span.value - lowest) / reach
        misplaced = self.ranking and (1 - share) * least < FEW_MISRANKED_ROWS
        enough = least >= FEW and not misplaced
        if not self.skewed or not span.firm or enough:
            return span
        trials = max(least if self.ranking else total, 1.0)
        inner = (min(max(share, 0.0), 1.0) * trials + 0.5) / (trials + 1)
        variance = max((span.sampling**2 + span.noise**2) / reach**2, 1e-12)
        most = 4 * trials if self.ranking else trials
        count = trials if misplaced else min(inner * (1 - inner) / variance, most)
        low, high = intervals.of_share(inner * count, count, np.zeros(3), asked.z)
        return replace(
            span,
            low=min(float(low) * reach + lowest, span.low),
            high=max(float(high) * reach + lowest, span.high),
        )


Ratio: TypeAlias = tuple[float, float, Floats, Floats]
"""Top and bottom of a ratio of two functions of counts, and their gradients, (2, buckets)."""


class RatioMetric(SmoothMetric):
    """Metric that is a ratio, top / bottom, of two smooth functions of counts."""

    @abstractmethod
    def ratio(self, h: Histogram) -> Ratio:
        """Return top and bottom with their gradients."""

    def value(self, h: Histogram) -> float:
        """Return the ratio."""
        top, bottom, _, _ = self.ratio(h)
        return top / bottom if bottom > 0 else math.nan

    def gradient(self, h: Histogram) -> Floats:
        """Return the ratio's derivative by each count."""
        _, bottom, top_gradient, bottom_gradient = self.ratio(h)
        return np.asarray((top_gradient - self.value(h) * bottom_gradient) / bottom)

    def trials(self, h: Histogram) -> float | None:
        """Return K, if the variance of top - t bottom by sampling is K t (1 - t) at the truth.

        So it is for shares of rows, with K = bottom; None: take it from the counts.
        """
        return None

    def unseen(self, h: Histogram) -> float:
        """Return the top's variance by kinds of rows that may exist but were rarely drawn."""
        return 0.0

    def excess(self, h: Histogram) -> Floats:
        """Return the mean excess of the noise variance of top - t bottom by the gradients, (3,).

        Noisy gradients are too long. The numbers are coefficients of 1, -2 t and t**2.
        """
        return np.zeros(3)

    def span_of_rows(self, h: Histogram, value: float, asked: IntervalOptions) -> Span:
        """Return the interval by Fieller's test; for a fraction of rows by Wilson's."""
        top, bottom, *gradients = self.ratio(h)
        through = np.asarray(np.stack(gradients) @ h.root).reshape(2, -1)
        noise = _coefficients(through @ through.T) - self.excess(h)
        widening = h.distribution.widening(through[0] - value * through[1], asked.level)
        sampling, trials = np.zeros(3), self.trials(h)
        if trials is not None:
            sampling[1:] = -trials / 2, -trials
        else:
            flat = np.stack(gradients).reshape(2, -1)
            counts = monotone_counts(h) if h.nodes else h.counts  # of nodes noise would be all
            sampling = _coefficients((flat * counts.ravel()) @ flat.T)
            sampling[0] += self.unseen(h)
        wide = noise * widening**2
        if trials is not None:
            unit = float(gradients[0].max())
            low, high = intervals.of_share(top, bottom, wide, asked.z, trials, unit)
        else:
            low, high = fieller(top, bottom, wide + sampling, asked.z, self.bounds)
        inside = float(np.clip(value, *self.bounds))
        at = np.array([1.0, -2 * inside, inside**2])  # variance of top - inside bottom
        by_rows, by_noise = (math.sqrt(max(v @ at, 0.0)) / bottom for v in (sampling, noise))
        span = Span(inside, float(low), float(high), by_rows, by_noise, self.firm(h))
        return self.for_few_rows(span, h, asked)


def _coefficients(covariance: Floats) -> Floats:
    """Return the coefficients of Var(top - t bottom) for `fieller`, (3,)."""
    return np.array([covariance[0, 0], covariance[0, 1], covariance[1, 1]])


Cells: TypeAlias = tuple[float, float, float, float]
"""Numbers for true negatives, false positives, false negatives, true positives."""


class LinearRatio(RatioMetric):
    """A ratio of two weighted sums of counts."""

    @abstractmethod
    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """Return the weights of the top and of the bottom, both (2, buckets)."""

    def ratio(self, h: Histogram) -> Ratio:
        """Return both sums, with their weights as gradients."""
        top, bottom = self.weights(h)
        return float((top * h.counts).sum()), float((bottom * h.counts).sum()), top, bottom

    def denominators(self, h: Histogram) -> Floats:
        """Return the weights of the bottom, (1, 2, buckets)."""
        return self.weights(h)[1][None]

    def of_cells(self, h: Histogram, cells: Cells) -> Floats:
        """Return the weights of counts, (2, buckets), from those of cells at the threshold."""
        positive = np.arange(h.buckets) >= edge_index(h, self.threshold)
        tn, fp, fn, tp = cells
        return np.stack([np.where(positive, fp, tn), np.where(positive, tp, fn)])


class Predictions(LinearRatio):
    """A ratio of sums over the four cells of a 2 x 2 table of outcome and prediction.

    Attributes
    ----------
    top, bottom
        weights of the cells
    """

    top: ClassVar[Cells]
    bottom: ClassVar[Cells]

    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """Return the weights of both sums."""
        return self.of_cells(h, self.top), self.of_cells(h, self.bottom)

    def trials(self, h: Histogram) -> float | None:
        """Return the number of rows of which the top is a fraction."""
        return self.ratio(h)[1]


class Accuracy(Predictions):
    """Share of rows whose prediction is their outcome; at threshold 0 the share of outcome 1."""

    name = "accuracy"
    in_groups = True
    top, bottom = (1, 0, 0, 1), (1, 1, 1, 1)


class ConditionalShare(Predictions):
    """Share among the rows of one outcome, or of one prediction."""

    scores = ("positive",)
    in_groups = True


class Precision(ConditionalShare):
    """Share of outcome 1 among the rows predicted positive."""

    name = "precision"
    top, bottom = (0, 0, 0, 1), (0, 1, 0, 1)


class Recall(ConditionalShare):
    """Share of predicted positives among the rows of outcome 1."""

    name = "recall"
    top, bottom = (0, 0, 0, 1), (0, 0, 1, 1)


class Specificity(ConditionalShare):
    """Share of predicted negatives among the rows of outcome 0."""

    name = "specificity"
    top, bottom = (1, 0, 0, 0), (1, 1, 0, 0)


class Prevalence(Predictions):
    """Share of rows of outcome 1."""

    name = "prevalence"
    scores = ("positive",)
    in_groups = True
    top, bottom = (0, 0, 1, 1), (1, 1, 1, 1)


class NetBenefit(LinearRatio):
    """(tp - fp t / (1 - t)) / n at threshold t (Vickers & Elkin 2006)."""

    name = "net_benefit"
    scores = ("positive",)
    bounds = (-math.inf, 1.0)

    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """Return true positives less false ones at the odds of the threshold; and all rows."""
        at = h.edges[edge_index(h, self.threshold)]
        return self.of_cells(h, (0, -at / (1 - at), 0, 1)), np.ones_like(h.counts)

    def unseen(self, h: Histogram) -> float:
        """Add two rows of each contributing kind, as in the interval of Agresti & Coull 1998."""
        kinds = np.unique(self.weights(h)[0])
        return float(2 * np.square(kinds).sum())


class MeanScore(LinearRatio):
    """A mean over rows of a function of score and outcome, read at the middles of buckets."""

    @classmethod
    @abstractmethod
    def at(cls, scores: Floats) -> Floats:
        """Return the function at scores for outcome 0 and 1, (buckets,) -> (2, buckets).

        It is monotone in the score.
        """

    def weights(self, h: Histogram) -> tuple[Floats, Floats]:
        """Return the function at the buckets' middles, or nodes, and ones."""
        return self.at(h.middles), np.ones_like(h.counts)

    def binning(self, h: Histogram) -> float:
        """Return the mean over rows of the larger change from a bucket's middle to an end."""
        low, middle, high = (self.at(s) for s in (h.edges[:-1], h.middles, h.edges[1:]))
        reach = np.maximum(np.abs(low - middle), np.abs(high - middle))
        if h.nodes:  # of both together the mean is right, but for what right rows of a tail lose
            reach[:, h.nodes] = h.edges[2]
        rows = h.counts.sum()
        return float(max((reach * h.counts).sum(), 0.0) / rows) if rows > 0 else math.nan


class Brier(MeanScore):
    """Mean of (score - outcome)**2 (Brier 1950, the form of two classes, as in scikit-learn)."""

    name = "brier"
    scores = ("positive",)
    in_groups = skewed = True
    scale = 0.25

    @classmethod
    def at(cls, scores: Floats) -> Floats:
        """Return the squared distance of score and outcome."""
        return np.stack([scores**2, (1 - scores) ** 2])


class LogLoss(MeanScore):
    """Mean of -ln of the outcome's probability, which is 1e-12 at least."""

    name, cut = "log_loss", "log_loss_cut"
    scores = ("positive",)
    skewed = True
    bounds = (0.0, -math.log(FLOOR))
    scale = math.log(2)
    least: ClassVar[float] = FLOOR

    @classmethod
    def at(cls, scores: Floats) -> Floats:
        """Return -ln of the outcome's probability."""
        own = np.clip(np.stack([1 - scores, scores]), cls.least, 1 - cls.least)
        return np.asarray(-np.log(own))


class Gap(MeanScore):
    """Mean score minus the share of outcome 1: below 0 the model predicts too low."""

    name = "gap"
    in_groups = True
    bounds = (-1.0, 1.0)
    scale = 0.4

    @classmethod
    def at(cls, scores: Floats) -> Floats:
        """Return score - outcome."""
        return np.stack([scores, scores - 1])


class RocAuc(RatioMetric):
    """Probability that a row of outcome 1 has a higher score than one of outcome 0, ties half.

    sum_i p_i (sum_{j<i} n_j + n_i / 2) / (P N) with p_i, n_i rows of outcome 1 and 0 in bucket i.
    Only pairs within one bucket are uncertain, half of each: |error| <= sum_i p_i n_i / (2 P N),
    and both ends are attained. The noise of the two outcomes is independent, so top and bottom
    are unbiased as they are released. (Measured: from monotone counts the error is the same where
    the noise is small, a quarter less where it dominates, and then biased by a third of itself.
    Cubic interpolation within buckets (PCHIP) takes 20 to 90 % off the error that 8 to 60 buckets
    make, and at 240 of them a few 1e-4, far within the bound: it is not used.)
    """

    name = "roc_auc"
    scores = ("positive",)
    in_groups = True
    skewed = ranking = True
    scale = 0.5

    def ratio(self, h: Histogram) -> Ratio:
        """Return correctly ordered pairs, and all pairs."""
        n, p = h.counts
        below = np.cumsum(n) - n / 2
        above = p.sum() - np.cumsum(p) + p / 2
        bottom = float(n.sum() * p.sum()) if min(n.sum(), p.sum()) > 0 else 0.0
        totals = np.repeat([[p.sum()], [n.sum()]], h.buckets, axis=1)
        return float(p @ below), bottom, np.stack([above, below]), totals

    def binning(self, h: Histogram) -> float:
        """Return half of the pairs that share a bucket."""
        n, p = h.counts
        bottom = n.sum() * p.sum()
        return float(max(p @ n, 0.0) / (2 * bottom)) if bottom > 0 else math.nan

    def excess(self, h: Histogram) -> Floats:
        """Return trace(M S M^T S) for p^T M n, with the covariance S of the noise of either."""
        through = h.root.T @ (np.cumsum(h.root, axis=0) - h.root / 2)
        total = h.root.sum(axis=0)
        each = (np.square(through).sum(), total @ through @ total, np.square(total @ total))
        return np.array(each)
