"""Calibration errors: how far scores are from the shares of outcome 1 among rows that have them.

Each is the sum, the maximum or the norm of gaps, and a gap is a weighted sum of the residuals
r_b = sum over the rows of bucket b of (outcome - score), with scores read at the middles. They are
no smooth functions of counts, and noise makes them too large:

* the value is what the pooled rows show: without noise the plug-in, with noise the error under
  which the noisy plug-in would be its own median (`fedcal.metrics.inversion`; the mean of the two
  answers for gaps spread over all bins and for gaps in few);
* the interval inverts the same test for noise and sampling together, and is for what infinitely
  many rows would show. It is extended to the value, so that no value lies outside its interval;
* `ece_debiased` is the median-unbiased estimate of that, the l1 analogue of the debiased estimator
  of Kumar et al. 2019 (arXiv 1909.10155, section 5): with few rows, the one to compare models by.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.registry import registry
from fedcal.core.types import Floats, Integers
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.estimators.ranking import MISPLACED, RocAuc
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import FIRM
from fedcal.metrics.binning import bin_index
from fedcal.metrics.inversion import JOINS, Join

BINS = 15


class GapMetric(ABC):
    """One calibration error.

    Attributes
    ----------
    name
        in `GAPS` and in results
    bounds
        smallest and largest value
    scale
        a difference between two values that is large: noise of a quarter of it drowns the metric
    join
        how gaps become the error
    power
        the error is the joined gaps to this power
    debiased
        the value corrects for the choice of rows too
    to_plug_in
        the interval must reach the plug-in
    band
        of a maximum over many dependent gaps, for which inverted tests are too narrow (they
        covered 88 %): the true one is at most its own observed gap and that gap's own quantile,
        and at least the observed maximum less the quantile of the largest deviation
    """

    name: ClassVar[str]
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    scale: ClassVar[float] = 0.4
    join: ClassVar[Join] = "sum"
    power: ClassVar[int] = 1
    debiased: ClassVar[bool] = False
    to_plug_in: ClassVar[bool] = False
    band: ClassVar[bool] = False

    @abstractmethod
    def gaps(self, h: Histogram) -> Floats:
        """Weights of residuals, in units of the error, (gaps, buckets)."""

    def value(self, h: Histogram) -> float:
        """The plug-in: the error that the counts show, noise included."""
        if h.counts.sum() <= 0:
            return math.nan
        return self.joined(self.gaps(h) @ residuals(h))

    def through(self, weights: Floats, drawn: NDArray[np.float32]) -> NDArray[np.float32]:
        """Gaps of drawn residuals, (draws, buckets) -> (draws, gaps)."""
        return np.asarray(drawn @ weights.T.astype(np.float32))

    def joined(self, gaps: Floats) -> float:
        """The error of gaps."""
        together, _ = JOINS[self.join]
        return float(together(np.abs(gaps), axis=0)) ** self.power

    def warning(self, h: Histogram) -> str:
        """Why the interval may be short; "" = it is not."""
        return ""

    def unseen(self, h: Histogram) -> float:
        """Largest gap of rows that `gaps` may leave out; 0 = it leaves none out."""
        return 0.0

    def binning(self, h: Histogram) -> float:
        """Bound of what scores, instead of the middles of their buckets, change."""
        reach = np.abs(self.gaps(h)) @ (rows_of(h) * np.diff(h.edges) / 2)
        return float(reach.max() if self.join == "max" else reach.sum())


def rows_of(h: Histogram) -> Floats:
    """Rows of each bucket, not negative, (buckets,)."""
    return np.asarray(monotone_counts(h).sum(axis=0))


def residuals(h: Histogram) -> Floats:
    """Summed outcome - score of each bucket, (buckets,)."""
    return np.asarray(h.counts[1] * (1 - h.middles) - h.counts[0] * h.middles)


def _members(bins: Integers, number: int) -> Floats:
    """Which bucket is in which bin, (bins, buckets) of 0 and 1."""
    return np.asarray(np.arange(number)[:, None] == bins, np.float64)


def equal_width(h: Histogram, bins: int = BINS) -> Integers:
    """Bin of each bucket's middle, (buckets,)."""
    return bin_index(h.middles, bins)


def equal_mass(h: Histogram, bins: int = BINS) -> Integers:
    """Bin of each bucket if all bins are to hold as many rows, (buckets,)."""
    rows = rows_of(h)
    share = (np.cumsum(rows) - rows / 2) / max(float(rows.sum()), 1e-300)
    return bin_index(np.clip(share, 0.0, 1.0), bins)


class Ece(GapMetric):
    """Sum over 15 bins of equal width of |sum of (outcome - score)| / n (Naeini et al. 2015)."""

    name = "ece"

    def gaps(self, h: Histogram) -> Floats:
        """Bins, over all rows."""
        return np.asarray(_members(equal_width(h), BINS) / h.counts.sum())

    def binning(self, h: Histogram) -> float:
        """The middles', and twice the residuals of buckets that lie in two bins."""
        low, high = bin_index(h.edges[:-1] + 1e-9, BINS), bin_index(h.edges[1:] - 1e-9, BINS)
        cut = np.where(low != high, rows_of(h), 0.0).sum() / h.counts.sum()
        return super().binning(h) + 2 * float(cut)


class EceDebiased(Ece):
    """ECE less what the choice of rows, and noise, add to it; see the module."""

    name = "ece_debiased"
    debiased = True


class EceEqualMass(GapMetric):
    """ECE over 15 bins of as equal a number of rows as edges of buckets allow."""

    name = "ece_equal_mass"

    def warning(self, h: Histogram) -> str:
        """Of scores that nearly separate the outcomes, whose gaps rest on few rows."""
        least = float(h.counts.sum(axis=1).min())
        separated = (1 - RocAuc().value(h)) * least < MISPLACED
        return "few rows are misplaced" if separated else ""

    def gaps(self, h: Histogram) -> Floats:
        """Bins, over all rows."""
        return np.asarray(_members(equal_mass(h), BINS) / h.counts.sum())


class Mce(GapMetric):
    """Largest |share of outcome 1 - mean score| of a bin of equal width that has rows.

    Noise hides it nearly always: a bin that noise may have filled, or emptied, may have any gap.
    """

    name = "mce"
    join = "max"

    def gaps(self, h: Histogram) -> Floats:
        """Bins, each over its own rows; those that noise may have filled are left out."""
        members, rows, used = self._bins(h)
        return np.asarray(members * np.where(used, 1 / np.where(used, rows, 1.0), 0.0)[:, None])

    def unseen(self, h: Histogram) -> float:
        """Of a bin that noise may have filled: the distance of its farther edge from 0 or 1."""
        members, _, used = self._bins(h)
        if used.all() or not h.noisy:
            return 0.0
        there = members[~used].any(axis=0)
        return float(np.maximum(h.edges[1:], 1 - h.edges[:-1])[there].max(initial=0.0))

    @staticmethod
    def _bins(h: Histogram) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Buckets and rows of each bin, and which surely have rows."""
        members = _members(equal_width(h), BINS)
        rows = members @ h.counts.sum(axis=0)
        noise = h.noise_std(np.stack([members, members], axis=1))
        return members, rows, (rows > FIRM * noise) & (rows > 0)


class Ks(GapMetric):
    """Largest |sum of (outcome - score) over scores up to t| / n (Gupta et al. 2021, eq. 3)."""

    name = "ks"
    join = "max"
    band = True

    def gaps(self, h: Histogram) -> Floats:
        """Prefixes, over all rows."""
        return np.asarray(np.tri(h.buckets) / h.counts.sum())

    def through(self, weights: Floats, drawn: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sums of prefixes, without a product with a triangle of ones."""
        return np.asarray(np.cumsum(drawn, axis=1) * np.float32(weights[0, 0]))

    def binning(self, h: Histogram) -> float:
        """The middles', and the largest excursion within one bucket."""
        n, p = monotone_counts(h)
        inside = np.maximum(p * (1 - h.edges[:-1]), n * h.edges[1:]).max() / h.counts.sum()
        return super().binning(h) + float(inside)


class BrierReliability(GapMetric):
    """Mean over rows of (share of outcome 1 - mean score of the row's bin)**2 (Murphy 1973)."""

    name = "brier_reliability"
    scale = 0.1
    join = "norm"
    power = 2

    def gaps(self, h: Histogram) -> Floats:
        """Bins of equal width, each over the root of its rows times all rows."""
        members = _members(equal_width(h), BINS)
        rows = members @ rows_of(h)
        root = np.sqrt(np.where(rows > 0, rows * max(h.counts.sum(), 1e-300), np.inf))
        return np.asarray(members / root[:, None])

    def binning(self, h: Histogram) -> float:
        """Of (g + d)**2 with |d| the middles' bound."""
        weights = self.gaps(h)
        reach = weights @ (rows_of(h) * np.diff(h.edges) / 2)
        return float((2 * np.abs(weights @ residuals(h)) * reach + reach**2).sum())


class SmoothEce(GapMetric):
    """Smooth ECE (Blasiok & Nakkiran 2023, arXiv 2309.12236): no bins to choose.

    The integral of the residuals smoothed by a Gaussian kernel reflected at 0 and 1, with the
    bandwidth s that equals the result. A smaller bandwidth never gives a smaller integral; so an
    interval of it at the observed s, extended to s, holds the true fixed point where it holds
    the true integral at s.
    """

    name = "smooth_ece"
    to_plug_in = True

    def gaps(self, h: Histogram) -> Floats:
        """At the observed bandwidth; a finer grid than the buckets would show no more."""
        return _kernel(h, _bandwidth(h)) / float(h.counts.sum())

    def binning(self, h: Histogram) -> float:
        """The middles', and how far the kernel moves with a score, sqrt(2 / pi) / s of it."""
        n, p = monotone_counts(h)
        rows, half = n + p, np.diff(h.edges) / 2
        size = p * (1 - h.edges[:-1]) + n * h.edges[1:]
        moved = np.minimum(math.sqrt(2 / math.pi) * half / _bandwidth(h), 2.0) * size
        return float((rows * half + moved).sum() / h.counts.sum())


_GRID = 100
_WAVES = 2 * _GRID


def _cosines(at: Floats) -> Floats:
    """Cosines of rising frequency, (waves, points)."""
    return np.asarray(np.cos(np.outer(np.arange(_WAVES) * math.pi, at)))


def _decay(width: float) -> Floats:
    """The reflected Gaussian is 1 + 2 sum_k exp(-(pi k s)**2 / 2) cos(pi k t) cos(pi k f)."""
    found = 2 * np.exp(-np.square(np.arange(_WAVES) * math.pi * width) / 2)
    found[0] = 1.0
    return np.asarray(found[found > 1e-12])


def _grid() -> Floats:
    return (np.arange(_GRID) + 0.5) / _GRID


def _kernel(h: Histogram, width: float) -> Floats:
    """The reflected Gaussian, integrated over cells of a grid, (grid, buckets)."""
    decay = _decay(width)
    at_grid, at_scores = _cosines(_grid())[: len(decay)], _cosines(h.middles)[: len(decay)]
    return np.asarray((at_grid.T * decay) @ at_scores / _GRID)


def _bandwidth(h: Histogram) -> float:
    """The bandwidth that equals the integral of the smoothed residuals."""
    at_grid = _cosines(_grid())
    waves = _cosines(h.middles) @ residuals(h) / h.counts.sum()
    low, high = 1e-4, 1.0
    for _ in range(24):
        middle = math.sqrt(low * high)
        decay = _decay(middle)
        smooth = (decay * waves[: len(decay)]) @ at_grid[: len(decay)] / _GRID
        low, high = (middle, high) if np.abs(smooth).sum() > middle else (low, middle)
    return math.sqrt(low * high)


GAPS: dict[str, type[GapMetric]] = registry(
    Ece, EceDebiased, EceEqualMass, SmoothEce, Mce, Ks, BrierReliability
)
"""Calibration errors by name."""
