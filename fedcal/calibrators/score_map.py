"""Calibrators of one number of a row, fitted to a histogram of it.

The number, the score, is `positive`: the probability of class 1 of two, which the calibrator
replaces; or `confidence`: the largest probability, which it replaces as `TopLabelBinning` does, so
that no prediction changes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.fits import score_fit
from fedcal.calibrators.fits.score_fit import Curve
from fedcal.calibrators.top_label import with_confidence
from fedcal.core.checks import one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.numerics import row_max, sigmoid
from fedcal.core.removed import check_kept
from fedcal.core.scores import Kind, probs_of
from fedcal.core.types import Floats, Integers, override
from fedcal.metrics.buckets import BELOW_HALF, DIGITS, bucket_of, check_score, equal_width, scored

if TYPE_CHECKING:
    from fedcal.evaluation.histogram import Histogram

Table = Literal["binning", "isotonic", "bbq"]

SCORES = ("positive", "confidence")
"""Scores of `fedcal.metrics.buckets` with a single histogram."""

BUCKETS = 240
"""Number of buckets of the histogram of pooled rows."""

TABLES = {"binning": score_fit.binned, "isotonic": score_fit.isotonic, "bbq": score_fit.bbq}


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
        self.score = check_score(one_of("score", score, SCORES), classes)

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

        score, edges = check_score("", z.shape[1]), equal_width(BUCKETS)
        scores, outcomes = scored(probs_of(self.input, z), y, score)
        cells = (bucket_of(scores, edges) + BUCKETS * outcomes).ravel()
        counts = np.bincount(cells, minlength=2 * BUCKETS).reshape(2, BUCKETS)
        h = Histogram.exact(edges, counts.astype(np.float64))
        made = self.from_histogram(h, self.how, score, z.shape[1])
        for name in self.parameters:
            setattr(self, name, getattr(made, name))

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        """Return the calibrated probability of class 1, or confidence."""
        probs = probs_of(input, logits)
        if self.score == "confidence":
            return with_confidence(logits, probs, self.value(row_max(probs)))
        s = probs[:, 1]  # 1/2 is counted below it, as `scored` does
        v = self.value(np.where(np.round(s, DIGITS) <= 0.5, np.minimum(s, BELOW_HALF), s))
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
        "binning", "isotonic" or "bbq" (`fedcal.calibrators.fits.score_fit`); a map of an earlier
        version may say "spline"
    """

    parameters = ("edges", "values", "score", "how")
    kind = "score-map"

    def __init__(
        self,
        edges: ArrayLike | None = None,
        values: ArrayLike | None = None,
        score: str = "positive",
        classes: int = 0,
        how: Table = "isotonic",
    ) -> None:
        if edges is None or str(how) != "spline":  # a map of an earlier version is read
            check_kept(how)
            one_of("how", how, TABLES)
        self.how: str = how
        self.edges: Floats = np.zeros(0)
        self.values: Floats = np.zeros(0)
        if edges is not None:
            self._set_score(score, classes)
            self.edges = np.ascontiguousarray(edges, np.float64)
            self.values = np.ascontiguousarray([] if values is None else values, np.float64)
            e, v = self.edges, self.values
            if v.ndim != 1 or not len(v) or not ((v >= 0) & (v <= 1)).all():
                raise InputError("values of buckets must be a vector of numbers within [0, 1]")
            if e.shape != (len(v) + 1,) or e[0] != 0 or e[-1] != 1 or not (np.diff(e) > 0).all():
                raise InputError(f"edges of {len(v)} buckets must increase from 0 to 1")

    @classmethod
    @override
    def from_histogram(cls, h: Histogram, how: str, score: str, classes: int) -> Self:
        table = one_of("how", how, get_args(Table))
        values = TABLES[table](h)
        new = np.append(True, values[1:] != values[:-1])  # buckets of one value become one
        return cls(np.append(h.edges[:-1][new], 1.0), values[new], score, classes, table)

    @override
    def value(self, scores: Floats) -> Floats:
        bucket = bucket_of(np.round(scores, DIGITS), self.edges)
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
            self.w = np.ascontiguousarray(w, np.float64)
            self.limits = np.ascontiguousarray([] if limits is None else limits, np.float64)
            if self.w.shape != (3,) or not np.isfinite(self.w).all() or self.w[:2].min() < 0:
                raise InputError("a logistic curve has 3 finite numbers a, b >= 0 and c")
            low, high = self.limits if self.limits.shape == (2,) else (np.nan, np.nan)
            if not 0 < low <= high < 1:
                raise InputError("limits of a score must be two increasing numbers in (0, 1)")

    @classmethod
    @override
    def from_histogram(cls, h: Histogram, how: str, score: str, classes: int) -> Self:
        curve = one_of("how", how, get_args(Curve))
        return cls(score_fit.logistic(h, curve), h.middles[[0, -1]], score, classes, curve)

    @override
    def value(self, scores: Floats) -> Floats:
        a, b, c = self.w
        cut = np.clip(scores, *self.limits)
        return sigmoid(a * np.log(cut) - b * np.log1p(-cut) + c)
