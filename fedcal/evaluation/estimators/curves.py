"""Curves of a histogram, at every edge of its buckets: ROC, decisions, reliability.

Points come from monotone counts (`monotone_counts`), so that a curve never runs backwards;
intervals, pointwise, come from the counts as they are released. The area under a curve is a metric
of its own, `roc_auc`, read from the counts and not from these points.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedcal.core.numerics import Floats
from fedcal.evaluation.estimators import calibration
from fedcal.evaluation.intervals import fieller, normal_quantile, of_share
from fedcal.metrics.histogram import Histogram, divide, from_each_edge, monotone_counts


@dataclass(frozen=True)
class Curve:
    """Points, and pointwise intervals of their heights.

    There is one point for each of the histogram's edges as the threshold from which on rows are
    predicted positive, or for each bin of a reliability diagram.

    Attributes
    ----------
    x, y
        points, NaN where y is a share of no rows
    low, high
        interval of each y, alone
    """

    x: Floats
    y: Floats
    low: Floats
    high: Floats


def roc_curve(h: Histogram, *, level: float = 0.95) -> Curve:
    """Return the false positive rate (x) and true positive rate (y) by threshold.

    Parameters
    ----------
    h
        rows by score and outcome
    level
        confidence level of each pointwise interval
    """
    positive, spread = from_each_edge(h.counts)[1], from_each_edge(h.root.T).T
    one = _squares(spread)
    noise = _noise(h, spread, level, one, spread @ spread[0], one[0])
    bottom = np.full_like(positive, positive[0])
    ends = of_share(positive, bottom, noise, normal_quantile(level))
    x, y = (_share(row, np.full_like(row, row[0])) for row in from_each_edge(monotone_counts(h)))
    return Curve(x, y, np.fmin(ends[0], y), np.fmax(ends[1], y))


def decision_curve(h: Histogram, *, level: float = 0.95) -> Curve:
    """Return the net benefit (y), tp / n - fp / n * t / (1 - t), at thresholds t (x) below 1.

    See Vickers & Elkin 2006; treating no row has 0. Parameters as in `roc_curve`.
    """
    t = h.edges[:-1]
    odds = t / (1 - t)
    negative, positive = from_each_edge(h.counts)[:, :-1]
    spread = from_each_edge(h.root.T).T[:-1]
    top, bottom = positive - odds * negative, np.full(h.buckets, h.counts.sum())
    one, cross = _squares(spread), spread @ spread[0]
    variance = _noise(h, spread, level, (1 + odds**2) * one, (1 - odds) * cross, 2 * one[0])
    # of top - v bottom, to which a row adds 1 - v, -odds - v or -v
    squares = positive + odds**2 * negative + 2 * (1 + odds**2)  # see `NetBenefit.unseen`
    variance = variance + np.stack([squares, top, bottom])
    ends = fieller(top, bottom, variance, normal_quantile(level), (-np.inf, 1.0))
    n, p = from_each_edge(monotone_counts(h))[:, :-1]
    return Curve(t, _share(p - odds * n, bottom), *ends)


def treat_all(h: Histogram) -> Floats:
    """Return the net benefit of treating all rows, at each threshold below 1."""
    (n, p), t = monotone_counts(h).sum(axis=1), h.edges[:-1]
    return _share(p - t / (1 - t) * n, np.full(h.buckets, h.counts.sum()))


def reliability(h: Histogram, bins: int = calibration.BINS, *, level: float = 0.95) -> Curve:
    """Return mean score (x) and fraction of outcome 1 (y) in bins of equal width.

    Parameters
    ----------
    h
        rows by score and outcome
    bins
        number of bins; a bucket belongs to the bin of its middle
    level
        as in `roc_curve`
    """
    members = calibration.bin_members(h, bins)
    low, high = _rates(h, h.counts @ members.T, members @ h.root, level)
    n, p = monotone_counts(h) @ members.T
    scores = members @ (calibration.rows_of(h) * h.middles)
    return Curve(_share(scores, n + p), _share(p, n + p), low, high)


def _rates(h: Histogram, counts: Floats, spread: Floats, level: float) -> tuple[Floats, Floats]:
    """Return intervals of the fraction of outcome 1 in sums of buckets, (2, sums) -> (sums,)."""
    one = _squares(spread)
    noise = _noise(h, spread, level, one, one, 2 * one)
    return of_share(counts[1], counts.sum(axis=0), noise, normal_quantile(level))


def _noise(h: Histogram, spread: Floats, level: float, *variance: Floats) -> Floats:
    """Return coefficients for `fieller`, widened by the law of few variates, (3, sums)."""
    widening = np.array([h.law.widening(weights, level) ** 2 for weights in spread])
    return np.asarray(np.stack(np.broadcast_arrays(*variance)) * widening)


def _squares(spread: Floats) -> Floats:
    return np.asarray(np.square(spread).sum(axis=1))


def _share(top: Floats, bottom: Floats) -> Floats:
    return divide(top, bottom, math.nan)
