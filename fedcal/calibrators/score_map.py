"""Calibrators of one number of a row, fitted to a histogram of it.

The number, the score, is `positive`: the probability of class 1 of two, which the calibrator
replaces; or `confidence`: the largest probability, which it replaces as `TopLabelBinning` does, so
that no prediction changes.

Maps of a score from its noisy histogram: the rate of outcome 1 in each bucket.

Counts come as in a release: noisy, possibly negative, with the covariance of their noise.
All of it is post-processing of the release, so nothing here costs any privacy.

Measured: log loss on held-out rows after 240 buckets of equal width, noise of std 3.7 (10) in each
count, mean of 20 draws; probabilities are cut at 1e-6:

==========  ======  ===========  ===========  ===========  ===========
..          before  binning      isotonic     platt        beta
==========  ======  ===========  ===========  ===========  ===========
IMDB        .303    .279 (.358)  .265 (.271)  .264 (.265)  .264 (.265)
forecasts   .647    .659 (.686)  .646 (.648)  .646 (.646)  .646 (.646)
ResNet-110  .358    .323 (.381)  .251 (.290)  .254 (.255)  .249 (.253)
==========  ======  ===========  ===========  ===========  ===========

Without noise isotonic regression is at least as good as the curves; under noise they lose least.
Nine tenths of the ResNet's rows lie in the last bucket: equi-depth buckets give .232 and .226
there, at std 3.7.

Weights of isotonic regression are noisy totals. One over the variance, with the variance from the
same noisy totals, was tried: it prefers totals that noise of outcome 0 made larger, and so lower
shares (ECE .050 against .008 on ResNet-110, equi-depth buckets, noise of prefix sums). One over the
known variance of noise plus sampling's, from totals smoothed over neighbours, was tried on halves
of the rows for fitting: better on IMDB (.269 and .280 against .271 and .301), but worse on
forecasts (.647 and .651, by .0003) and ResNet-110 at std 3.7 (one against the rest: .178, .175).
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from fedcal.calibrators import histogram_binning
from fedcal.calibrators.base import Calibrator
from fedcal.core.checks import InputError, check_kept, one_of, whole
from fedcal.core.fields import array, increasing
from fedcal.core.numerics import KINDS, Floats, Integers, Kind, override, probs_of, row_max, sigmoid
from fedcal.metrics import binning

if TYPE_CHECKING:
    from fedcal.evaluation.histogram import Histogram


Curve = Literal["platt", "beta"]

SLOPES = {"platt": np.ones((1, 2)), "beta": np.eye(2)}
"""Basis of the free (a, b) in a log s - b log(1 - s) + c."""

LEAST_ROWS = 1e-9
"""Rows of a bucket, instead of 0 in a variance."""

_STEPS = 100  # of Newton's method; it ends after about ten
_LONGEST = 0.5  # step of a parameter
_NEAR = 1e-9  # a step that ends it
_NEIGHBOURS = 2  # on either side of a bucket that its rows are estimated from
_NOISE_STDS = 2.0  # rows a group of buckets has at least, in stds of their noise
_SPREAD = 0.3  # variance of a share around the logistic curve, in units of m (1 - m)


def isotonic(h: Histogram) -> Floats:
    """Fit an isotonic regression of the outcome on the score, (buckets,).

    Buckets are joined until their noisy total exceeds two stds of its noise; pool-adjacent-
    violators then weighs with these totals, so that each block's value is a ratio of its sums. A
    block of few rows, or of much noise, is drawn to the logistic curve of `logistic`, as a prior
    of variance .3 m (1 - m) around it and one row would draw it. Without noise this is isotonic
    regression of the buckets but for that one row (Zadrozny & Elkan 2002).
    """
    from scipy.optimize import isotonic_regression  # slow to import

    curve = probability(logistic(h, "platt"), h.middles)
    starts = _solid(h)
    (wrong, right), ends = _sums(h.counts, starts), np.append(starts, h.buckets)
    total, noise = wrong + right, np.add.reduceat(h.root, starts, axis=0)
    if total[0] <= 0:  # one group: almost nothing is known
        return curve
    value = isotonic_regression(right / total, weights=total).x
    rows = histogram_binning.norm_sub(h.counts.sum(axis=0)) + LEAST_ROWS
    first = np.flatnonzero(np.append(True, value[1:] != value[:-1]))
    out = np.empty(h.buckets)
    for i, j in pairwise(np.append(first, len(value))):
        block = slice(ends[i], ends[j])
        m, t = np.average(curve[block], weights=rows[block]), total[i:j].sum()
        variance = np.square(noise[i:j].sum(axis=0)).sum() * (m**2 + (1 - m) ** 2) / t**2
        trust = 1 / (1 + 1 / t + variance / (_SPREAD * m * (1 - m)))
        out[block] = trust * np.clip(value[i], 0.0, 1.0) + (1 - trust) * m
    return np.maximum.accumulate(out)  # blocks are drawn by different amounts


def logistic(h: Histogram, curve: Curve) -> Floats:
    """Fit (a, b, c) of the outcome rate 1 / (1 + exp(-(a log s - b log(1 - s) + c))), (3,).

    `platt` has a = b (Platt 1999, on the logit of the score), `beta` is free (Kull et al. 2017);
    neither slope is negative: one that would be is 0 and the others are fitted again. With x the
    features in the buckets' middles, D = diag(t g (1 - g)) and S the covariance of P - T g from
    both sampling and noise,

        x D S^-1 (P - T g) = w - w_0

    is solved for w: the best weights of the unbiased equations P = T g (quasi-likelihood,
    Wedderburn 1974), so that buckets of noise alone have next to none and nothing needs to be cut
    at 0. Without noise it is maximum likelihood. w_0, the identity map, has the weight of a normal
    prior of variance 1. In D and S the rows t of a bucket are means over its neighbours: from its
    own noise alone, rows and weight would be correlated.
    """
    slopes = SLOPES[curve]
    m = h.middles
    x = np.stack([np.log(m), -np.log1p(-m)])
    while True:
        w = _quasi_likelihood(h, np.concatenate([slopes @ x, np.ones((1, h.buckets))]))
        if not len(slopes) or w[:-1].min() >= 0:
            return np.append(w[:-1] @ slopes, w[-1])
        slopes = np.delete(slopes, w[:-1].argmin(), axis=0)


def probability(w: Floats, scores: Floats) -> Floats:
    """Return 1 / (1 + exp(-(a log s - b log(1 - s) + c))) of scores in (0, 1), shape kept."""
    return sigmoid(w[0] * np.log(scores) - w[1] * np.log1p(-scores) + w[2])


def _quasi_likelihood(h: Histogram, x: Floats) -> Floats:
    """Fit `logistic` to features x, (k, buckets), the last of them constant: w, (k,)."""
    start = np.append(np.ones(len(x) - 1), 0.0)
    total, near = h.counts.sum(axis=0), np.ones(2 * _NEIGHBOURS + 1) / (2 * _NEIGHBOURS + 1)
    around = np.pad(total, _NEIGHBOURS, "edge")  # rows are means over neighbours, not negative
    rows = histogram_binning.norm_sub(np.convolve(around, near, "valid"))
    noise, w = h.root @ h.root.T, start
    for _ in range(_STEPS):
        z = w @ x
        e = np.exp(-np.abs(z))
        g, d = np.where(z >= 0, 1.0, e) / (1 + e), rows * e / (1 + e) ** 2
        both = np.outer(1 - g, 1 - g) + np.outer(g, g)  # P - T g = (1 - g) P - g N
        weights = np.linalg.solve(noise * both + np.diag(d + LEAST_ROWS), (x * d).T).T
        slope = weights @ (h.counts[1] - total * g) - (w - start)
        step = np.linalg.solve(weights @ (x * d).T + np.eye(len(x)), slope)
        longest = np.abs(step).max()
        w = w + step * min(1.0, _LONGEST / max(longest, _NEAR))
        if longest < _NEAR:
            break
    return w


def _solid(h: Histogram) -> Integers:
    """Return first buckets of groups with at least one row, and two stds of noise, (groups,)."""
    total, starts = h.counts.sum(axis=0), [0]
    rows, noise = 0.0, np.zeros(h.root.shape[1])

    def enough() -> bool:
        return bool(rows >= max(1.0, _NOISE_STDS * float(np.sqrt(2 * noise @ noise))))

    for b in range(h.buckets):
        if b > starts[-1] and enough():
            starts.append(b)
            rows, noise = 0.0, np.zeros_like(noise)
        rows, noise = rows + total[b], noise + h.root[b]
    if len(starts) > 1 and not enough():
        starts.pop()
    return np.array(starts)


def _sums(counts: Floats, starts: Integers) -> Floats:
    return np.asarray(np.add.reduceat(counts, starts, axis=-1))


SCORES = ("positive", "confidence")
"""Scores of `fedcal.metrics.binning` with a single histogram."""

BUCKETS = 240
"""Number of buckets of the histogram of pooled rows."""

_EVER = ("isotonic", "binning", "bbq", "spline")  # the others are of maps of earlier versions


class OfScore(Calibrator):
    """Base of `ScoreMap` and `ScoreLogistic`, which map one number of a row.

    Attributes
    ----------
    how
        it is fitted
    score
        number of a row that it maps
    """

    how: str
    score: str = "positive"

    def _set_score(self, score: str, classes: int) -> None:
        self.classes = whole("classes", classes, 2)
        self.score = binning.check_score(one_of("score", score, SCORES), classes)

    @abstractmethod
    def value(self, scores: Floats) -> Floats:
        """Return the calibrated score, shape kept."""

    @classmethod
    @abstractmethod
    def from_histogram(cls, h: Histogram, how: str, score: str, classes: int) -> Self:
        """Fit to the counts of a release, at no further cost in privacy."""

    def _fit(self, z: Floats, y: Integers) -> None:
        """Count the pooled rows in 240 buckets of equal width, by their default score."""
        from fedcal.evaluation.histogram import Histogram  # the room may import calibrators

        score, edges = binning.check_score("", z.shape[1]), binning.equal_width(BUCKETS)
        scores, outcomes = binning.scored(probs_of(self.input, z), y, score)
        cells = (binning.bucket_of(scores, edges) + BUCKETS * outcomes).ravel()
        counts = np.bincount(cells, minlength=2 * BUCKETS).reshape(2, BUCKETS)
        h = Histogram.exact(edges, counts.astype(np.float64))
        made = self.from_histogram(h, self.how, score, z.shape[1])
        for name in self.parameters:
            setattr(self, name, getattr(made, name))

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        """Return the calibrated probability of class 1, or confidence."""
        probs = probs_of(input, logits)
        if self.score == "confidence":
            return histogram_binning.with_confidence(logits, probs, self.value(row_max(probs)))
        s = probs[:, 1]  # 1/2 is counted below it, as `scored` does
        low = np.round(s, binning.DIGITS) <= 0.5
        v = self.value(np.where(low, np.minimum(s, binning.BELOW_HALF), s))
        return np.stack([1.0 - v, v], axis=1)


class ScoreMap(OfScore):
    """A value for each bucket of the score.

    Parameters
    ----------
    edges
        (b + 1,) of the buckets, increasing from 0 to 1; a score on an edge belongs to the bucket
        above it
    values
        (b,) in [0, 1]
    score
        "positive" or "confidence"
    classes
        number of classes; 0 = not fitted yet
    how
        "isotonic"; a map of an earlier version may say "binning", "bbq" or "spline"
    """

    parameters = ("edges", "values", "score", "how")
    kind = "score-map"

    def __init__(
        self,
        edges: ArrayLike | None = None,
        values: ArrayLike | None = None,
        score: str = "positive",
        classes: int = 0,
        how: str = "isotonic",
    ) -> None:
        self.how: str = one_of("how", how, _EVER[:1] if edges is None else _EVER)
        self.edges: Floats = np.zeros(0)
        self.values: Floats = np.zeros(0)
        if edges is not None:
            self._set_score(score, classes)
            self.values = array("values of buckets", values, (None,), 0, 1)
            self.edges = array("edges of buckets", edges, (len(self.values) + 1,))
            increasing("edges of buckets", self.edges)

    @classmethod
    @override
    def from_histogram(cls, h: Histogram, how: str, score: str, classes: int) -> Self:
        values = isotonic(h)
        new = np.append(True, values[1:] != values[:-1])  # buckets of one value become one
        return cls(np.append(h.edges[:-1][new], 1.0), values[new], score, classes)

    @override
    def value(self, scores: Floats) -> Floats:
        bucket = binning.bucket_of(np.round(scores, binning.DIGITS), self.edges)
        return np.asarray(self.values[bucket])


class ScoreLogistic(OfScore):
    """1 / (1 + exp(-(a log s - b log(1 - s) + c))) of the score s.

    Parameters
    ----------
    w
        (3,) a, b and c, finite, a and b >= 0
    limits
        (2,) in (0, 1): scores are cut to them. They are the middles of the outermost buckets:
        beyond, the histogram does not separate scores, and an extrapolated curve would (measured
        on ResNet-110, with most rows in the last of 240 buckets: ECE .030 against .013)
    score
        "positive" or "confidence"
    classes
        number of classes; 0 = not fitted yet
    how
        "platt" (a = b) or "beta"
    """

    parameters = ("w", "limits", "score", "how")
    kind = "score-logistic"

    def __init__(
        self,
        w: ArrayLike | None = None,
        limits: ArrayLike | None = None,
        score: str = "positive",
        classes: int = 0,
        how: Curve = "platt",
    ) -> None:
        self.how = one_of("how", how, get_args(Curve))
        self.w: Floats = np.zeros(0)
        self.limits: Floats = np.zeros(0)
        if w is not None:
            self._set_score(score, classes)
            self.w = array("a, b and c of a logistic curve", w, (3,))
            self.limits = array("limits of a logistic curve", limits, (2,))
            low, high = self.limits
            if min(self.w[:2]) < 0 or not 0 < low <= high < 1:
                raise InputError("a logistic curve has a, b >= 0 and increasing limits in (0, 1)")

    @classmethod
    @override
    def from_histogram(cls, h: Histogram, how: str, score: str, classes: int) -> Self:
        curve = one_of("how", how, get_args(Curve))
        return cls(logistic(h, curve), h.middles[[0, -1]], score, classes, curve)

    @override
    def value(self, scores: Floats) -> Floats:
        a, b, c = self.w
        cut = np.clip(scores, *self.limits)
        return sigmoid(a * np.log(cut) - b * np.log1p(-cut) + c)


How = Literal["isotonic", "platt", "beta"]


def calibrator_from(
    h: Histogram, score: binning.Score, how: How, classes: int, input: Kind
) -> ScoreMap | ScoreLogistic:
    """Return a calibrator of the score that was binned.

    Parameters
    ----------
    h
        rows by score and outcome
    score
        "positive" (two classes; the outcome is class 1) or "confidence" (a correct prediction)
    how
        "isotonic" (`ScoreMap`), "platt" or "beta" (`ScoreLogistic`); see this module. Under
        noise "platt" and "beta" lose least
    classes
        number of classes of the model
    input
        kind of the model's scores, "logits" or "probs"

    Raises
    ------
    InputError
        An unknown name, or a score that models of so many classes do not have.
    """
    check_kept(f"--calibrate {how}")
    form = ScoreMap if one_of("how", how, get_args(How)) == "isotonic" else ScoreLogistic
    calibrator = form.from_histogram(h, how, score, classes)
    calibrator.input = one_of("input", input, KINDS)
    return calibrator
