"""Intervals of calibration errors, from draws of noise and of the choice of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.calibration import BINS, GapMetric, Mce, residuals
from fedcal.evaluation.estimators.curves import reliability
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import FIRM, Span, normal_quantile
from fedcal.metrics.inversion import Inverted, concentrated, invert, spread_out

REPLICATES = 400

HIDDEN = 0.025
"""Noise hides a calibration error that may be 0, if it may also be more than this part of its
`scale`: more than 1 point of ECE."""


@dataclass(frozen=True)
class Simulated:
    """Deviations of residuals from the truth, (replicates, buckets) each."""

    noise: NDArray[np.float32]
    sampling: NDArray[np.float32]


def simulate(h: Histogram, seed: int, what: str = "") -> Simulated:
    """Draws of what noise and the choice of rows add to residuals."""
    rng = stream(seed, Purpose.BOOTSTRAP, what=f"calibration {what}")
    size = (REPLICATES, h.buckets)
    noise = np.zeros(size, np.float32)
    if h.noisy:
        negative, positive = h.draws(rng, REPLICATES).transpose(1, 0, 2)
        noise = (positive * (1 - h.middles) - negative * h.middles).astype(np.float32)
    n, p = monotone_counts(h)
    std = np.sqrt(p * (1 - h.middles) ** 2 + n * h.middles**2).astype(np.float32)
    return Simulated(noise, std * rng.standard_normal(size, np.float32))


def gap_span(
    metric: GapMetric,
    h: Histogram,
    simulated: Simulated,
    level: float,
    rows: str,
    spread: float | None = None,
    effect: float = 1.0,
) -> Span:
    """Value and interval of a calibration error, before binning.

    Parameters
    ----------
    metric
        which one
    h
        the histogram
    simulated
        from `simulate`
    level
        of the interval
    rows
        `new` or `these`
    spread
        variance of the error that clients give; the deviations of independent rows are then made
        larger (or smaller) by the ratio of both standard deviations
    effect
        what the variance of these deviations is multiplied by, without `spread`
    """
    total = h.counts.sum()
    if total <= 0:
        return Span(math.nan, *metric.bounds, math.nan, math.nan, False)
    firm = bool(total > FIRM * h.noise_std(np.ones_like(h.counts)))
    weights = metric.gaps(h)
    if not weights.any():
        return Span(math.nan, *metric.bounds, math.nan, math.nan, False)
    gap = weights @ residuals(h)
    tails = (0.5 - level / 2, 0.5 + level / 2)
    plug_in = metric.joined(gap)
    value, noise, noise_only, hidden = plug_in, 0.0, None, False
    if h.noisy:
        by_noise = metric.through(weights, simulated.noise)
        noise_only = _invert(metric, gap, by_noise, tails)
        value = noise_only.corrected**metric.power
        noise = float(np.std(noise_only.replicates**metric.power))
        limit = noise_only.limit**metric.power
        hidden = noise_only.low <= 0 and limit > HIDDEN * metric.scale
    held = (value, plug_in) if metric.to_plug_in else (value,)
    if rows == "these":
        if noise_only is None:
            return Span(value, value, value, 0.0, 0.0, firm)
        alone = _span(metric, noise_only, held, 0.0, noise, firm, hidden)
        return _open(metric, h, alone, level, rows, 1.0)
    deviations = metric.through(weights, simulated.sampling)
    if spread is not None:
        own = _invert(metric, gap, deviations, tails).replicates ** metric.power
        effect = spread / max(float(np.var(own)), 1e-24)
    deviations *= np.float32(math.sqrt(effect))
    if h.noisy:
        deviations += by_noise
    both = _invert(metric, gap, deviations, tails)
    if metric.debiased:
        held = (both.corrected**metric.power,)
    sampling = math.sqrt(max(float(np.var(both.replicates**metric.power)) - noise**2, 0.0))
    span = _span(metric, both, held, sampling, noise, firm, hidden)
    return _open(metric, h, span, level, rows, effect)


def _open(
    metric: GapMetric, h: Histogram, span: Span, level: float, rows: str, effect: float
) -> Span:
    """The span; of a largest gap of bins, from the intervals of their shares.

    The true largest gap is below the upper end of its own bin, and no bin is above it: the lower
    end holds for all bins at once. What `Mce.unseen` says may be anything.
    """
    if not isinstance(metric, Mce):
        return span
    z = normal_quantile(level) * math.sqrt(effect)
    each = normal_quantile(1 - (1 - level) / BINS) * math.sqrt(effect)
    own, all_bins = (bin_gaps(h, quantile, rows) for quantile in (z, each))
    low, high = min(float(all_bins[0].max()), span.value), max(float(own[1].max()), span.value)
    unseen = metric.unseen(h)
    if unseen:  # a denominator may be 0: nothing but the low end of other errors holds
        return replace(span, low=0.0, high=max(high, unseen), firm=False)
    return replace(span, low=low, high=high)


def bin_gaps(h: Histogram, z: float, rows: str) -> tuple[Floats, Floats]:
    """Smallest and largest |share - mean score| of each bin that surely has rows."""
    found = reliability(h, level=2 * NormalDist().cdf(min(z, 7.0)) - 1, rows=rows)
    there = Mce().gaps(h).any(axis=1)
    low, high, at = found.low[there], found.high[there], found.score[there]
    inside = np.maximum(np.maximum(low - at, at - high), 0.0)
    return np.asarray(inside), np.asarray(np.maximum(np.abs(low - at), np.abs(high - at)))


def _invert(
    metric: GapMetric, gap: Floats, deviations: NDArray[np.float32], tails: tuple[float, float]
) -> Inverted:
    """The high end and the limit where true gaps are spread out, the low end where they are not."""
    error = deviations.std(axis=0, dtype=np.float64)
    dense, sparse = (
        invert(gap, direction, lambda part: deviations[:, part], REPLICATES, metric.join, tails)
        for direction in (spread_out(gap, error), concentrated(gap, error))
    )
    found = replace(
        dense,
        low=min(dense.low, sparse.low),
        corrected=(dense.corrected + sparse.corrected) / 2,
    )
    if not metric.band:
        return found
    reach = float(np.quantile(np.abs(deviations).max(axis=1), tails[1]))
    single = np.quantile(deviations, tails[1], axis=0)
    low = max(float(np.abs(gap).max()) - reach, 0.0)
    return replace(found, low=low, limit=float((np.abs(gap) + single).max()))


def _span(
    metric: GapMetric,
    found: Inverted,
    held: tuple[float, ...],
    sampling: float,
    noise: float,
    firm: bool,
    hidden: bool,
) -> Span:
    """The interval, extended to what it must hold; the first of that is the value."""
    low, high = found.low**metric.power, found.limit**metric.power
    return Span(held[0], min(low, *held), max(high, *held), sampling, noise, firm, hidden)
