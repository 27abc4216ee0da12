"""Calibration slope and intercept: the logistic regression of the outcome on the score's logit.

1 and 0 are perfect; a slope below 1 means that scores are too extreme (Cox 1958; Steyerberg 2009).
Log odds are cut at those of 1e-12, where tails of the score were counted in two nodes, of which the
mean is known; else scores are cut at 1e-4. Others are read at the middles of buckets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.special import expit

from fedcal.core.numerics import FLOOR
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.metrics import LEAST, MISPLACED, RocAuc, SmoothMetric
from fedcal.evaluation.histogram import Histogram, monotone_counts
from fedcal.evaluation.intervals import Asked, Span

_STEPS = 50
_STEEPEST = 20.0  # beyond: rows are separated, or noise is all there is


class Recalibration(SmoothMetric):
    """One coefficient of the regression, of `intercept + slope * logit(score)`."""

    bounds = (-math.inf, math.inf)
    in_groups = True
    least: ClassVar[float] = FLOOR
    which: ClassVar[int]
    """0: the intercept, 1: the slope"""

    def value(self, h: Histogram) -> float:
        """Return the coefficient; NaN without a finite maximum of the likelihood."""
        fit = regression(h, self.least)
        return math.nan if fit is None else float(fit[self.which])

    def gradient(self, h: Histogram) -> Floats:
        """Return the implicit derivative by the score equations, sum of (y - p) (1, x) = 0."""
        if (fit := regression(h, self.least)) is None:
            return np.full(h.counts.shape, math.nan)
        p, _, lever = self._at(h, fit)
        return np.stack([-p * lever, (1 - p) * lever])

    def _at(self, h: Histogram, fit: Floats) -> tuple[Floats, Floats, Floats]:
        """Return fitted probabilities, own row of the inverse information, residual weights."""
        x = logit(h.middles, self.least)
        p = expit(fit[0] + fit[1] * x)
        row = np.linalg.inv(_information(h.counts.sum(axis=0), x, p))[self.which]
        return p, row, row[0] + row[1] * x

    def binning(self, h: Histogram) -> float:
        """Return the first-order change if each row's logit moves to its bucket's worse end.

        Of a tail in nodes the mean logit of either outcome is known: rows may lie at its ends, as
        is counted, or all at the mean. (What is convex there has its sum between these two.)
        """
        if (fit := regression(h, self.least)) is None:
            return math.nan
        x, low, high = (logit(s, self.least) for s in (h.middles, h.edges[:-1], h.edges[1:]))
        p, row, lever = self._at(h, fit)
        slack = np.stack([-p, 1 - p]) * row[1] - (p * (1 - p) * fit[1]) * lever
        reach = np.maximum(high - x, x - low)
        reach[h.nodes], moved = 0.0, 0.0
        inner = float(max((np.abs(slack) * reach * h.counts).sum(), 0.0))
        for side in (h.nodes[:2], h.nodes[2:], h.nodes) if h.nodes else ():
            end = regression(h, self.least, side)
            moved = max(moved, math.inf if end is None else abs(end - fit)[self.which])
        return inner + moved

    def warning(self, h: Histogram) -> str:
        """Return a warning if scores nearly separate the outcomes: few rows then fix the slope."""
        least = float(h.counts.sum(axis=1).min())
        separated = (1 - RocAuc().value(h)) * least < MISPLACED
        return "few rows are misplaced" if separated else ""

    def span_of_rows(self, h: Histogram, value: float, asked: Asked) -> Span:
        """Return the interval by inverting its efficient score test.

        At each value t the other coefficient is fitted to monotone counts, and the score of t, a
        sum of the released counts with weights orthogonal to that fit, is compared with its
        standard deviation: sums of noisy counts are unbiased. (The delta method divides by a noisy
        information: at 20,000 rows it covered 83 to 98 % as the noise grew, this 93 to 98 %.)
        The interval has no ends if a denominator may be 0.
        """
        from scipy.optimize import brentq

        z, x, counts = asked.z, logit(h.middles, self.least), monotone_counts(h)
        total, one = counts.sum(axis=0), np.ones(h.buckets)
        own, rest = (x, one) if self.which else (one, x)
        fit = regression(h, self.least)
        # from 0 and 1 Newton's steps do not end where scores are far too extreme
        start = 0.0 if fit is None else float(fit[1 - self.which])

        def score(t: float) -> tuple[float, float, float, float]:
            """Return the score, its variances by rows and by noise, and the information about t."""
            at = start
            for _ in range(_STEPS):
                p = expit(t * own + at * rest)
                weight = total * p * (1 - p)
                step = float((counts[1] - total * p) @ rest) / max(float(weight @ rest**2), 1e-12)
                at += min(max(step, -2.0), 2.0)
                if abs(step) < 1e-8:
                    break
            lever = own - rest * float(weight @ (own * rest)) / max(float(weight @ rest**2), 1e-12)
            weights = np.stack([-p * lever, (1 - p) * lever])
            new = asked.rows == "new"
            by_rows = float((counts * weights**2).sum()) if new else h.drawn_variance(weights)
            observed = float((h.counts * weights).sum())
            return (
                observed,
                by_rows,
                float(h.noise_std(weights)) ** 2,
                float(weight @ (lever * own)),
            )

        def accepted(t: float) -> float:
            """Return a value below 0 if t is inside the interval."""
            observed, by_rows, by_noise, _ = score(t)
            return abs(observed) - z * math.sqrt(by_rows + by_noise)

        _, by_rows, by_noise, information = score(value)
        if information <= 0:
            return Span(value, *self.bounds, math.nan, math.nan, False)
        ends = []
        for side in (-1.0, 1.0):
            inside, reach = value, z * math.sqrt(by_rows + by_noise) / information
            while accepted(value + side * reach) <= 0 and reach < _STEEPEST:
                inside, reach = value + side * reach, 2 * reach + 1e-9
            if reach >= _STEEPEST:
                ends.append(side * math.inf)
            elif accepted(inside) >= 0:  # neither rows nor noise
                ends.append(inside)
            else:
                ends.append(float(brentq(accepted, inside, value + side * reach, rtol=1e-4)))
        by_rows, by_noise = (math.sqrt(part) / information for part in (by_rows, by_noise))
        if not self.firm(h):
            return Span(value, *self.bounds, by_rows, by_noise, False)
        return Span(value, ends[0], ends[1], by_rows, by_noise)


class CalibrationSlope(Recalibration):
    """Slope of the outcome on the logit of the score; below 1 = scores are too extreme."""

    name, cut = "calibration_slope", "calibration_slope_cut"
    scale = 2.0
    which = 1


class CalibrationSlopeCut(CalibrationSlope):
    """Slope on the logit of scores that are cut to [1e-4, 1 - 1e-4]."""

    name, cut = "calibration_slope_cut", ""
    heading = "calibration slope, scores cut at 1e-4"
    least = LEAST


class CalibrationIntercept(Recalibration):
    """Intercept beside the slope; 0 if calibrated."""

    name, cut = "calibration_intercept", "calibration_intercept_cut"
    scale = 4.0
    which = 0


class CalibrationInterceptCut(CalibrationIntercept):
    """Intercept beside the slope of scores that are cut to [1e-4, 1 - 1e-4]."""

    name, cut = "calibration_intercept_cut", ""
    heading = "calibration intercept, scores cut at 1e-4"
    least = LEAST


def logit(scores: Floats, least: float = FLOOR) -> Floats:
    """Return log odds of scores; both probabilities are `least` at least."""
    return np.asarray(np.log(np.maximum(scores, least)) - np.log(np.maximum(1 - scores, least)))


def _information(rows: Floats, x: Floats, p: Floats) -> Floats:
    weight = rows * p * (1 - p)
    cross = weight @ x
    return np.array([[weight.sum(), cross], [cross, weight @ x**2]])


def regression(h: Histogram, least: float, together: Sequence[int] = ()) -> Floats | None:
    """Return intercept and slope by Newton's method on the raw counts, (2,); None = no maximum.

    Noisy counts may make the likelihood lose its maximum. Rows of the buckets `together`, two at
    either end, are read at the mean logit of their outcome there.
    """
    x = np.tile(logit(h.middles, least), (2, 1))
    for pair in (together[k : k + 2] for k in range(0, len(together), 2)):
        rows = np.maximum(h.counts[:, pair], 1e-9)
        x[:, pair] = np.average(x[:, pair], axis=1, weights=rows)[:, None]
    positive = np.stack([0 * h.counts[1], h.counts[1]])
    return logistic(x.ravel(), h.counts.ravel(), positive.ravel())


def logistic(x: Floats, rows: Floats, positive: Floats) -> Floats | None:
    """Fit intercept and slope on x, (n,), to `positive` of `rows` outcomes at each, (2,)."""
    if rows.sum() <= 0:
        return None
    at = np.zeros(2)  # from a slope of 1 steps do not end where scores are far too extreme

    def loss(at: Floats) -> float:
        z = at[0] + at[1] * x
        return float(rows @ np.logaddexp(0.0, z) - positive @ z)

    here = loss(at)
    for _ in range(_STEPS):
        p = expit(at[0] + at[1] * x)
        slack = positive - rows * p
        score = np.array([slack.sum(), slack @ x])
        information = _information(rows, x, p)
        if not (information[0, 0] > 0 and np.linalg.det(information) > 0):
            return None
        step = np.linalg.solve(information, score)
        if np.abs(step).max() < 1e-10:
            return at
        share = 1.0
        while not (there := loss(at + share * step)) <= here and share > 1e-6:
            share /= 2
        at, here = at + share * step, there
        if np.abs(at).max() > _STEEPEST:
            return None
    return at if np.abs(step).max() < 1e-6 else None
