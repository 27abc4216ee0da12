"""Calibration errors: variants of the ECE, MCE, KS error, reliability of the Brier score."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.types import Floats
from fedcal.evaluation.estimators.base import Asked
from fedcal.evaluation.estimators.curves import reliability
from fedcal.evaluation.estimators.gap_metric import (
    BINS,
    GapMetric,
    equal_mass,
    equal_width,
    members_of,
    residuals,
    rows_of,
)
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.estimators.ranking import few_misplaced
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import FIRM, Span, normal_quantile
from fedcal.metrics.binning import bin_index


class Ece(GapMetric):
    """Sum over 15 bins of equal width of |sum of (outcome - score)| / n (Naeini et al. 2015)."""

    name = "ece"
    heading = "ECE, %"
    of_score: ClassVar = {
        "positive": "ECE of the positive class, %",
        "confidence": "top-label ECE, %",
    }
    in_groups = True

    def gaps(self, h: Histogram) -> Floats:
        """Return each bin's weights of residuals, over all rows, (bins, buckets)."""
        return np.asarray(members_of(equal_width(h), BINS) / h.counts.sum())

    def binning(self, h: Histogram) -> float:
        """Return the middles' bound plus twice the fraction of rows in buckets of two bins."""
        low, high = bin_index(h.edges[:-1], BINS), bin_index(h.edges[1:] - 1e-6, BINS)
        cut = np.where(low != high, rows_of(h), 0.0).sum() / h.counts.sum()
        return super().binning(h) + 2 * float(cut)


class EceDebiased(Ece):
    """ECE minus the bias from sampling and noise; see the module."""

    name = "ece_debiased"
    heading = "ECE, debiased, %"
    of_score: ClassVar = {}
    in_groups = False
    debiased = True


class EceEqualMass(GapMetric):
    """ECE over 15 bins of as equal a number of rows as edges of buckets allow."""

    name = "ece_equal_mass"
    heading = "ECE, bins of equal mass, %"

    def warning(self, h: Histogram) -> str:
        """Return a warning if scores nearly separate the outcomes: gaps rest on few rows."""
        return few_misplaced(h)

    def gaps(self, h: Histogram) -> Floats:
        """Return each bin's weights of residuals, over all rows, (bins, buckets)."""
        return np.asarray(members_of(equal_mass(h), BINS) / h.counts.sum())


class Mce(GapMetric):
    """Largest |share of outcome 1 - mean score| of a bin of equal width that has rows.

    Noise hides it nearly always: a bin that noise may have filled, or emptied, may have any gap.
    """

    name = "mce"
    heading = "MCE, %"
    never_below: ClassVar = {"gap": 1.0, "ece": 1.0, "brier_reliability": 0.5}
    join = "max"

    def gaps(self, h: Histogram) -> Floats:
        """Return bins, each over its own rows, without those that noise may have filled."""
        members, rows, used = self._bins(h)
        return np.asarray(members * np.where(used, 1 / np.where(used, rows, 1.0), 0.0)[:, None])

    def unseen(self, h: Histogram) -> float:
        """Return the largest gap that bins filled by noise alone could have; 0 without any."""
        members, _, used = self._bins(h)
        if used.all() or not h.noisy:
            return 0.0
        there = members[~used].any(axis=0)
        return float(np.maximum(h.edges[1:], 1 - h.edges[:-1])[there].max(initial=0.0))

    def opened(self, span: Span, h: Histogram, asked: Asked) -> Span:
        """Return the span from the intervals of the bins' gaps.

        The true largest gap is below the upper end of its own bin, and no bin is above it: the
        lower end holds for all bins at once. The gap of an `unseen` bin may have any value.
        """
        each = normal_quantile(1 - (1 - asked.level) / BINS)
        own, all_bins = (bin_gaps(h, quantile, asked.rows) for quantile in (asked.z, each))
        low, high = min(float(all_bins[0].max()), span.value), max(float(own[1].max()), span.value)
        unseen = self.unseen(h)
        if unseen:  # a denominator may be 0: nothing but the low end of other errors holds
            return replace(span, low=0.0, high=max(high, unseen), firm=False)
        return replace(span, low=low, high=high)

    @staticmethod
    def _bins(h: Histogram) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return buckets and rows of each bin, and whether it surely has rows."""
        members = members_of(equal_width(h), BINS)
        rows = members @ h.counts.sum(axis=0)
        noise = h.noise_std(np.stack([members, members], axis=1))
        return members, rows, (rows > FIRM * noise) & (rows > 0)


def bin_gaps(h: Histogram, z: float, rows: str) -> tuple[Floats, Floats]:
    """Return the smallest and largest |share - mean score| of each bin that surely has rows."""
    curve = reliability(h, level=2 * NormalDist().cdf(min(z, 7.0)) - 1, rows=rows)
    there = Mce().gaps(h).any(axis=1)
    low, high, at = curve.low[there], curve.high[there], curve.score[there]
    inside = np.maximum(np.maximum(low - at, at - high), 0.0)
    return np.asarray(inside), np.asarray(np.maximum(np.abs(low - at), np.abs(high - at)))


class Ks(GapMetric):
    """Largest |sum of (outcome - score) over scores up to t| / n (Gupta et al. 2021, eq. 3)."""

    name = "ks"
    heading = "KS calibration error, %"
    join = "max"
    band = True

    def gaps(self, h: Histogram) -> Floats:
        """Return prefixes of buckets, over all rows."""
        return np.asarray(np.tri(h.buckets) / h.counts.sum())

    def through(self, weights: Floats, drawn: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return sums of prefixes, without a product with a triangle of ones."""
        return np.asarray(np.cumsum(drawn, axis=1) * np.float32(weights[0, 0]))

    def binning(self, h: Histogram) -> float:
        """Return the middles' bound plus the largest excursion within one bucket."""
        n, p = monotone_counts(h)
        inside = np.maximum(p * (1 - h.edges[:-1]), n * h.edges[1:]).max() / h.counts.sum()
        return super().binning(h) + float(inside)


class BrierReliability(GapMetric):
    """Mean over rows of (share of outcome 1 - mean score of the row's bin)**2 (Murphy 1973)."""

    name = "brier_reliability"
    heading = "Brier: reliability"
    never_below: ClassVar = {"gap": 2.0, "ece": 2.0}
    scale = 0.1
    join = "norm"
    power = 2

    def gaps(self, h: Histogram) -> Floats:
        """Return bins of equal width, each over the root of its rows times all rows."""
        members = members_of(equal_width(h), BINS)
        rows = members @ rows_of(h)
        root = np.sqrt(np.where(rows > 0, rows * max(h.counts.sum(), 1e-300), np.inf))
        return np.asarray(members / root[:, None])

    def binning(self, h: Histogram) -> float:
        """Return the bound for (g + d)**2, where |d| is at most the middles' bound."""
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
    heading = "smooth ECE, %"
    to_plug_in = True

    def gaps(self, h: Histogram) -> Floats:
        """Return the kernel of the observed bandwidth; finer grids would show no more."""
        return _kernel(h, _bandwidth(h)) / float(h.counts.sum())

    def binning(self, h: Histogram) -> float:
        """Return the middles' bound plus the kernel's movement, sqrt(2 / pi) / s of the score's."""
        n, p = monotone_counts(h)
        rows, half = n + p, np.diff(h.edges) / 2
        size = p * (1 - h.edges[:-1]) + n * h.edges[1:]
        moved = np.minimum(math.sqrt(2 / math.pi) * half / _bandwidth(h), 2.0) * size
        return float((rows * half + moved).sum() / h.counts.sum())


_GRID = 100
_WAVES = 2 * _GRID


def _cosines(at: Floats) -> Floats:
    """Return cosines of rising frequency, (waves, points)."""
    return np.asarray(np.cos(np.outer(np.arange(_WAVES) * math.pi, at)))


def _decay(width: float) -> Floats:
    """Return the cosines' weights in the reflected Gaussian of standard deviation `width`.

    It is 1 + 2 sum_k exp(-(pi k s)**2 / 2) cos(pi k t) cos(pi k f).
    """
    weights = 2 * np.exp(-np.square(np.arange(_WAVES) * math.pi * width) / 2)
    weights[0] = 1.0
    return np.asarray(weights[weights > 1e-12])


def _grid() -> Floats:
    return (np.arange(_GRID) + 0.5) / _GRID


def _kernel(h: Histogram, width: float) -> Floats:
    """Return the reflected Gaussian, integrated over cells of a grid, (grid, buckets)."""
    decay = _decay(width)
    at_grid, at_scores = _cosines(_grid())[: len(decay)], _cosines(h.middles)[: len(decay)]
    return np.asarray((at_grid.T * decay) @ at_scores / _GRID)


def _bandwidth(h: Histogram) -> float:
    """Return the bandwidth that equals the integral of the smoothed residuals."""
    at_grid = _cosines(_grid())
    waves = _cosines(h.middles) @ residuals(h) / h.counts.sum()
    low, high = 1e-4, 1.0
    for _ in range(24):
        middle = math.sqrt(low * high)
        decay = _decay(middle)
        smooth = (decay * waves[: len(decay)]) @ at_grid[: len(decay)] / _GRID
        low, high = (middle, high) if np.abs(smooth).sum() > middle else (low, middle)
    return math.sqrt(low * high)
