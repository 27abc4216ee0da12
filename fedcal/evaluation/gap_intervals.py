"""Intervals of calibration errors, from draws of noise and of the choice of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcal.evaluation.calibration import GapMetric, residuals
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import FIRM, Span
from fedcal.evaluation.monotone import monotone_counts
from fedcal.metrics.inversion import Inverted, concentrated, invert, spread_out
from fedcal.streams import Purpose, stream
from fedcal.types import Floats

REPLICATES = 400


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
    value, noise, noise_only = plug_in, 0.0, None
    if h.noisy:
        by_noise = metric.through(weights, simulated.noise)
        noise_only = _invert(metric, gap, by_noise, tails)
        value = noise_only.corrected**metric.power
        noise = float(np.std(noise_only.replicates**metric.power))
    held = (value, plug_in) if metric.to_plug_in else (value,)
    if rows == "these":
        if noise_only is None:
            return Span(value, value, value, 0.0, 0.0, firm)
        return _span(metric, noise_only, held, 0.0, noise, firm)
    deviations = metric.through(weights, simulated.sampling)
    if spread is not None:
        alone = _invert(metric, gap, deviations, tails).replicates ** metric.power
        deviations *= np.float32(math.sqrt(spread) / max(float(np.std(alone)), 1e-12))
    else:
        deviations *= np.float32(math.sqrt(effect))
    if h.noisy:
        deviations += by_noise
    both = _invert(metric, gap, deviations, tails)
    if metric.debiased:
        held = (both.corrected**metric.power,)
    sampling = math.sqrt(max(float(np.var(both.replicates**metric.power)) - noise**2, 0.0))
    return _span(metric, both, held, sampling, noise, firm)


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
) -> Span:
    """The interval, extended to what it must hold; the first of that is the value."""
    low, high = found.low**metric.power, found.limit**metric.power
    return Span(held[0], min(low, *held), max(high, *held), sampling, noise, firm)
