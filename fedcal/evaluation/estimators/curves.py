"""Curves of a histogram, at every edge of its buckets: ROC, precision-recall, decisions.

Points come from monotone counts (`monotone_counts`), so that a curve never runs backwards;
intervals, pointwise, come from the counts as they are released. Areas under curves are metrics of
their own (`roc_auc`, `average_precision`), read from the counts and not from these points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedcal.core.types import Floats
from fedcal.evaluation.estimators.calibration import BINS, equal_width, members_of
from fedcal.evaluation.histogram import Histogram, divide, from_each_edge, monotone_counts
from fedcal.evaluation.intervals import check_rows, fieller, normal_quantile, of_share


@dataclass(frozen=True)
class Curve:
    """Points by threshold, and pointwise intervals of their heights.

    Attributes
    ----------
    thresholds
        (buckets + 1,) edges from 0 to 1; predicted positive = a score from there on, at 1 none
    x, y
        (buckets + 1,) points, NaN where nothing is predicted positive and y is their share
    low, high
        (buckets + 1,) interval of y at each threshold, alone
    """

    thresholds: Floats
    x: Floats
    y: Floats
    low: Floats
    high: Floats


def roc_curve(h: Histogram, *, level: float = 0.95, rows: str = "new") -> Curve:
    """Return the false positive rate (x) and true positive rate (y) by threshold.

    Parameters
    ----------
    h
        rows by score and outcome
    level
        confidence level of each pointwise interval
    rows
        `new` or `these`, as in `evaluate`
    """
    z = normal_quantile(level)
    sums = from_each_edge(h.counts)
    spread = from_each_edge(h.root.T).T
    noise = np.stack(
        [_dot(spread, spread), spread @ spread[0], _dot(spread[:1], spread[:1]).repeat(len(spread))]
    )
    bottom = np.full(h.buckets + 1, sums[1, 0])
    low, high = of_share(sums[1], bottom, noise * _widening(h, spread, level), z, rows)
    points = from_each_edge(monotone_counts(h))
    x, y = (divide(row, np.full_like(row, row[0]), math.nan) for row in points)
    return _curve(h.edges, x, y, low, high)


def precision_recall_curve(h: Histogram, *, level: float = 0.95, rows: str = "new") -> Curve:
    """Return recall (x) and precision (y) by threshold; parameters as in `roc_curve`."""
    z = normal_quantile(level)
    negative, positive = from_each_edge(h.counts)
    spread = from_each_edge(h.root.T).T
    one = _dot(spread, spread)
    noise = np.stack([one, one, 2 * one])
    bottom = negative + positive
    low, high = of_share(positive, bottom, noise * _widening(h, spread, level), z, rows)
    n, p = from_each_edge(monotone_counts(h))
    x, y = divide(p, np.full_like(p, p[0]), math.nan), divide(p, n + p, math.nan)
    return _curve(h.edges, x, y, low, high)


def _curve(thresholds: Floats, x: Floats, y: Floats, low: Floats, high: Floats) -> Curve:
    """Return a curve with intervals extended to contain their points."""
    return Curve(thresholds, x, y, np.fmin(low, y), np.fmax(high, y))


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit by threshold (Vickers & Elkin 2006); treating no row has 0.

    Attributes
    ----------
    thresholds
        (buckets,) lower edges of buckets
    net_benefit
        (buckets,) net benefit of treating rows with a score from the threshold on
    low, high
        (buckets,) pointwise intervals of it
    treat_all
        (buckets,) net benefit of treating all rows
    """

    thresholds: Floats
    net_benefit: Floats
    low: Floats
    high: Floats
    treat_all: Floats


def decision_curve(h: Histogram, *, level: float = 0.95, rows: str = "new") -> DecisionCurve:
    """Return the net benefit, tp / n - fp / n * t / (1 - t); parameters as in `roc_curve`."""
    z = normal_quantile(level)
    check_rows(rows)
    t = h.edges[:-1]
    odds = t / (1 - t)
    negative, positive = (row[:-1] for row in from_each_edge(h.counts))
    spread = from_each_edge(h.root.T).T[:-1]
    total = float(h.counts.sum())
    top, bottom = positive - odds * negative, np.full(h.buckets, total)
    one, cross = _dot(spread, spread), spread @ spread[0]
    noise = np.stack(
        [(1 + odds**2) * one, (1 - odds) * cross, np.full(h.buckets, 2 * float(one[0]))]
    )
    noise = noise * _widening(h, spread, level)
    sampling = np.zeros_like(noise)
    if rows == "new":  # of top - v bottom with a row's part 1 - v, -odds - v or -v
        squares = positive + odds**2 * negative + 2 * (1 + odds**2)  # see `NetBenefit.unseen`
        sampling = np.stack([squares, top, bottom])
    low, high = fieller(top, bottom, noise + sampling, z, (-np.inf, 1.0))
    n, p = from_each_edge(monotone_counts(h))
    rest = total if total > 0 else np.nan
    return DecisionCurve(t, (p[:-1] - odds * n[:-1]) / rest, low, high, (p[0] - odds * n[0]) / rest)


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Share of outcome 1 by bin of the score.

    Attributes
    ----------
    edges
        (bins + 1,) of equal width
    score, share
        (bins,) mean score and share of outcome 1; NaN without rows
    low, high
        (bins,) interval of the share
    rows
        (bins,) how many, as released
    """

    edges: Floats
    score: Floats
    share: Floats
    low: Floats
    high: Floats
    rows: Floats


def reliability(
    h: Histogram, bins: int = BINS, *, level: float = 0.95, rows: str = "new"
) -> ReliabilityDiagram:
    """Return mean score and fraction of outcome 1 in bins of equal width.

    Parameters
    ----------
    h
        rows by score and outcome
    bins
        number of bins; a bucket belongs to the bin of its middle
    level, rows
        as in `roc_curve`
    """
    z = normal_quantile(level)
    members = members_of(equal_width(h, bins), bins)
    negative, positive = h.counts @ members.T
    spread = members @ h.root
    one = _dot(spread, spread) * _widening(h, spread, level)
    bottom = negative + positive
    low, high = of_share(positive, bottom, np.stack([one, one, 2 * one]), z, rows)
    n, p = monotone_counts(h) @ members.T
    scores = (monotone_counts(h).sum(axis=0) * h.middles) @ members.T
    return ReliabilityDiagram(
        np.linspace(0.0, 1.0, bins + 1),
        divide(scores, n + p, math.nan),
        divide(p, n + p, math.nan),
        low,
        high,
        bottom,
    )


def _widening(h: Histogram, spread: Floats, level: float) -> Floats:
    """Return the factor of each sum's noise variance, by the law of few variates; (sums,)."""
    return np.array([h.law.widening(weights, level) ** 2 for weights in spread])


def _dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", a, b))
