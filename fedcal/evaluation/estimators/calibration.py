"""Calibration: distances of scores from rates, slope and intercept, tests.

A calibration error is the sum of the absolute gaps of bins, a gap a weighted sum of residuals
r_b = sum over the rows of bucket b of (outcome - score), with scores read at the middles. It is
not a smooth function of counts, and noise makes it too large:

* the value is what the pooled rows show: without noise the plug-in, with noise the error under
  which the noisy plug-in would be its own median (`fedcal.metrics.bootstrap`; the mean of the two
  answers for gaps spread over all bins and for gaps in few);
* the interval inverts the same test for noise and sampling together, and is for what infinitely
  many rows would show. It is extended to the value, so that no value lies outside its interval.

Calibration slope and intercept: the logistic regression of the outcome on the score's logit.

1 and 0 are perfect; a slope below 1 means that scores are too extreme (Cox 1958; Steyerberg 2009).
Log odds are cut at those of 1e-12, where tails of the score were counted in two nodes, of which the
mean is known; else scores are cut at 1e-4. Others are read at the middles of buckets.

Curves of a histogram, at every edge of its buckets: ROC, precision and recall, decisions,
reliability.

Points come from monotone counts (`monotone_counts`), so that a curve never runs backwards;
intervals, pointwise, come from the counts as they are released. The area under a curve is a metric
of its own, `roc_auc`, read from the counts and not from these points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, expit

from fedcal.core.numerics import FLOOR, Floats, Purpose, stream
from fedcal.evaluation import intervals
from fedcal.evaluation.estimators.metrics import FEW_MISRANKED_ROWS, RocAuc, SmoothMetric
from fedcal.metrics.binning import bin_index
from fedcal.metrics.bootstrap import Inverted, concentrated, invert, spread_out
from fedcal.metrics.histogram import Histogram, divide, from_each_edge, monotone_counts

BINS = 15

REPLICATES = 400

HIDDEN = 0.025
"""Noise hides a calibration error that may be 0, if it may also be more than this part of its
`scale`: more than 1 point of ECE."""


class Ece(intervals.Metric):
    """Sum over 15 bins of equal width of |sum of (outcome - score)| / n (Naeini et al. 2015)."""

    name = "ece"
    scores = ("confidence",)
    in_groups = True
    scale = 0.4

    def gaps(self, h: Histogram) -> Floats:
        """Return each bin's weights of residuals, over all rows, (bins, buckets)."""
        return np.asarray(bin_members(h) / h.counts.sum())

    def value(self, h: Histogram) -> float:
        """Return the plug-in value: the error that the counts show, noise included."""
        if h.counts.sum() <= 0:
            return math.nan
        return float(np.abs(self.gaps(h) @ residuals(h)).sum())

    def binning(self, h: Histogram) -> float:
        """Return the bound of what scores, instead of middles, change, and of buckets of two bins.

        That is twice the fraction of rows in them.
        """
        reach = (np.abs(self.gaps(h)) @ (rows_of(h) * np.diff(h.edges) / 2)).sum()
        low, high = bin_index(h.edges[:-1], BINS), bin_index(h.edges[1:] - 1e-6, BINS)
        cut = np.where(low != high, rows_of(h), 0.0).sum() / h.counts.sum()
        return float(reach + 2 * cut)

    def span(self, h: Histogram, asked: intervals.IntervalOptions) -> intervals.Span:
        """Return value and interval of the error, before binning."""
        if h.rows <= 0 or not (weights := self.gaps(h).T.astype(np.float32)).any():
            return self.no_span()
        by_noise, by_rows = (draws @ weights for draws in simulate(h, asked.seed, asked.what))
        value, noise, hidden = self.value(h), 0.0, False
        if h.noisy:
            inverted = self.inverted(h, by_noise, asked.level)
            value, noise = inverted.corrected, float(np.std(inverted.replicates))
            hidden = inverted.low <= 0 and inverted.limit > HIDDEN * self.scale
        both = self.inverted(h, by_rows + by_noise, asked.level)
        sampling = math.sqrt(max(float(np.var(both.replicates)) - noise**2, 0.0))
        low, high = min(both.low, value), max(both.limit, value)
        return intervals.Span(
            value, low, high, sampling, noise, h.rows > intervals.FIRM * h.rows_std, hidden
        )

    def inverted(self, h: Histogram, deviations: NDArray[np.float32], level: float) -> Inverted:
        """Return high end and limit for spread-out true gaps, low end for concentrated ones.

        `deviations` are draws of observed less true gaps, (replicates, bins).
        """
        gap, error = self.gaps(h) @ residuals(h), deviations.std(axis=0, dtype=np.float64)
        tails = (0.5 - level / 2, 0.5 + level / 2)
        dense, sparse = (
            invert(gap, direction, lambda part: deviations[:, part], REPLICATES, tails)
            for direction in (spread_out(gap, error), concentrated(gap, error))
        )
        return replace(
            dense,
            low=min(dense.low, sparse.low),
            corrected=(dense.corrected + sparse.corrected) / 2,
        )


@lru_cache(maxsize=8)
def simulate(h: Histogram, seed: int, what: str) -> tuple[NDArray[np.float32], ...]:
    """Draw the change of residuals by noise, and by the choice of rows, (replicates, buckets)."""
    rng = stream(seed, Purpose.BOOTSTRAP, what=f"calibration {what}")
    size = (REPLICATES, h.buckets)
    noise = np.zeros(size, np.float32)
    if h.noisy:
        negative, positive = h.draws(rng, REPLICATES).transpose(1, 0, 2)
        noise = (positive * (1 - h.middles) - negative * h.middles).astype(np.float32)
    n, p = monotone_counts(h)
    std = np.sqrt(p * (1 - h.middles) ** 2 + n * h.middles**2).astype(np.float32)
    return noise, std * rng.standard_normal(size, np.float32)


def rows_of(h: Histogram) -> Floats:
    """Return the rows of each bucket, not negative, (buckets,)."""
    return np.asarray(monotone_counts(h).sum(axis=0))


def residuals(h: Histogram) -> Floats:
    """Return the summed outcome - score of each bucket, (buckets,)."""
    return np.asarray(h.counts[1] * (1 - h.middles) - h.counts[0] * h.middles)


def bin_members(h: Histogram, bins: int = BINS) -> Floats:
    """Return 1 where a bucket's middle is in a bin of equal width, else 0, (bins, buckets)."""
    return np.asarray(np.arange(bins)[:, None] == bin_index(h.middles, bins), np.float64)


FAR_TAIL = 1e-4
"""Smallest reported p-value of a distribution that holds to first order."""


@dataclass(frozen=True)
class CalibrationTest:
    """A test statistic and its p-value under calibrated scores; `floor` is the least one shown."""

    statistic: float
    p_value: float
    floor: float = 1e-3

    def bounded(self) -> CalibrationTest:
        """Return the test with a p-value of at least `FAR_TAIL`."""
        return CalibrationTest(self.statistic, max(self.p_value, FAR_TAIL), FAR_TAIL)


def cox(h: Histogram) -> CalibrationTest:
    """Test slope 1 and intercept 0 of the outcome on the score's logit by scores (Cox 1958).

    Two weighted sums of the residuals, by 1 and by the logit less what goes with the 1, each
    squared over its variance of calibrated rows and of noise: chi-squared of 2 degrees. It sees
    scores that are too extreme (slope below 1) where their mean is right, at one group as well.
    """
    rows, outcome = rows_of(h), np.stack([-h.middles, 1 - h.middles], axis=1)
    spread = rows * h.middles * (1 - h.middles)
    noise = outcome[:, :, None] * h.root[:, None, :]  # of residuals, by the variates of both rows

    def product(a: Floats, b: Floats) -> float:
        """Return the covariance of two weighted sums of residuals."""
        through = [np.tensordot(w, noise, 1) for w in (a, b)]
        return float((a * b * spread).sum() + (through[0] * through[1]).sum())

    one, x = np.ones(h.buckets), logit(h.middles)
    if product(one, one) <= 0 or h.counts.sum() <= 0:
        return CalibrationTest(math.nan, 1.0)
    steep = x - one * product(x, one) / product(one, one)
    statistic = 0.0
    for weights in (one, steep):
        size = abs(float(weights @ residuals(h)))
        slack = float(np.abs(weights) @ (rows * np.diff(h.edges))) / 2
        statistic += max(size - slack, 0.0) ** 2 / max(product(weights, weights), 1e-300)
    return CalibrationTest(statistic, float(chdtrc(2, statistic)))


def together(tests: Iterable[CalibrationTest]) -> CalibrationTest:
    """Test all groups' `cox` at once: the sum of chi-squared statistics of 2 degrees each."""
    known = [t.statistic for t in tests if math.isfinite(t.statistic)]
    return CalibrationTest(sum(known), float(chdtrc(2 * len(known), sum(known))) if known else 1.0)


# -- slope and intercept ---------------------------------------------------------------------------

_STEPS = 50
_STEEPEST = 20.0  # beyond: rows are separated, or noise is all there is


class ClasswiseEce(Ece):
    """The ECE of the probability of class 1 of two: that of class 0 is the same."""

    name = "classwise_ece"
    scores = ("positive",)


ECES = (Ece.name, ClasswiseEce.name)


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
        separated = (1 - RocAuc().value(h)) * least < FEW_MISRANKED_ROWS
        return "few rows are misplaced" if separated else ""

    def span_of_rows(
        self, h: Histogram, value: float, asked: intervals.IntervalOptions
    ) -> intervals.Span:
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
            by_rows = float((counts * weights**2).sum())
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
            return intervals.Span(value, *self.bounds, math.nan, math.nan, False)
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
            return intervals.Span(value, *self.bounds, by_rows, by_noise, False)
        return intervals.Span(value, ends[0], ends[1], by_rows, by_noise)


class CalibrationSlope(Recalibration):
    """Slope of the outcome on the logit of the score; below 1 = scores are too extreme."""

    name, cut = "calibration_slope", "calibration_slope_cut"
    scale = 2.0
    which = 1


class CalibrationIntercept(Recalibration):
    """Intercept beside the slope; 0 if calibrated."""

    name, cut = "calibration_intercept", "calibration_intercept_cut"
    scale = 4.0
    which = 0


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


@dataclass(frozen=True)
class EvaluationCurve:
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


def roc_curve(h: Histogram, *, level: float = 0.95) -> EvaluationCurve:
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
    ends = intervals.of_share(positive, bottom, noise, intervals.normal_quantile(level))
    x, y = (_share(row, np.full_like(row, row[0])) for row in from_each_edge(monotone_counts(h)))
    return EvaluationCurve(x, y, np.fmin(ends[0], y), np.fmax(ends[1], y))


def pr_curve(h: Histogram, *, level: float = 0.95) -> EvaluationCurve:
    """Return recall (x) and precision (y) by threshold. Parameters as in `roc_curve`.

    Precision is NaN where no row is predicted positive.
    """
    negative, positive = from_each_edge(h.counts)
    one = _squares(spread := from_each_edge(h.root.T).T)
    noise = _noise(h, spread, level, one, one, 2 * one)
    ends = intervals.of_share(
        positive, negative + positive, noise, intervals.normal_quantile(level)
    )
    n, p = from_each_edge(monotone_counts(h))
    x, y = _share(p, np.full_like(p, p[0])), _share(p, n + p)
    return EvaluationCurve(x, y, np.fmin(ends[0], y), np.fmax(ends[1], y))


def decision_curve(h: Histogram, *, level: float = 0.95) -> EvaluationCurve:
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
    ends = intervals.fieller(
        top, bottom, variance, intervals.normal_quantile(level), (-np.inf, 1.0)
    )
    n, p = from_each_edge(monotone_counts(h))[:, :-1]
    return EvaluationCurve(t, _share(p - odds * n, bottom), *ends)


def treat_all(h: Histogram) -> Floats:
    """Return the net benefit of treating all rows, at each threshold below 1."""
    (n, p), t = monotone_counts(h).sum(axis=1), h.edges[:-1]
    return _share(p - t / (1 - t) * n, np.full(h.buckets, h.counts.sum()))


def reliability(h: Histogram, bins: int = BINS, *, level: float = 0.95) -> EvaluationCurve:
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
    members = bin_members(h, bins)
    spread, counts = members @ h.root, h.counts @ members.T
    one = _squares(spread)
    noise = _noise(h, spread, level, one, one, 2 * one)
    low, high = intervals.of_share(
        counts[1], counts.sum(axis=0), noise, intervals.normal_quantile(level)
    )
    n, p = monotone_counts(h) @ members.T
    scores = members @ (rows_of(h) * h.middles)
    return EvaluationCurve(_share(scores, n + p), _share(p, n + p), low, high)


def _noise(h: Histogram, spread: Floats, level: float, *variance: Floats) -> Floats:
    """Return coefficients for `fieller`, widened by the law of few variates, (3, sums)."""
    widening = np.array([h.distribution.widening(weights, level) ** 2 for weights in spread])
    return np.asarray(np.stack(np.broadcast_arrays(*variance)) * widening)


def _squares(spread: Floats) -> Floats:
    return np.asarray(np.square(spread).sum(axis=1))


def _share(top: Floats, bottom: Floats) -> Floats:
    return divide(top, bottom, math.nan)
