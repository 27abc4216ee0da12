"""Calibration errors: distances of scores from the rates of outcome 1 among their rows.

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
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers
from fedcal.evaluation.estimators.base import Asked, Metric
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import FIRM, Span
from fedcal.metrics.binning import bin_index
from fedcal.metrics.inversion import JOINS, Inverted, Join, concentrated, invert, spread_out

BINS = 15

REPLICATES = 400

HIDDEN = 0.025
"""Noise hides a calibration error that may be 0, if it may also be more than this part of its
`scale`: more than 1 point of ECE."""


@dataclass(frozen=True)
class GapMetric(Metric):
    """One calibration error.

    Attributes
    ----------
    join
        rule that joins gaps to the error
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
    never_below
        metrics whose absolute value to this power it is never below, of the same rows
    """

    scale = 0.4
    join: ClassVar[Join] = "sum"
    power: ClassVar[int] = 1
    debiased: ClassVar[bool] = False
    to_plug_in: ClassVar[bool] = False
    band: ClassVar[bool] = False
    never_below: ClassVar[Mapping[str, float]] = {"gap": 1.0}

    @abstractmethod
    def gaps(self, h: Histogram) -> Floats:
        """Return the weights of residuals, in units of the error, (gaps, buckets)."""

    def value(self, h: Histogram) -> float:
        """Return the plug-in value: the error that the counts show, noise included."""
        if h.counts.sum() <= 0:
            return math.nan
        return self.joined(self.gaps(h) @ residuals(h))

    def through(self, weights: Floats, drawn: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gaps of drawn residuals, (draws, buckets) -> (draws, gaps)."""
        return np.asarray(drawn @ weights.T.astype(np.float32))

    def joined(self, gaps: Floats) -> float:
        """Return the error of the bins' gaps, joined and raised to `power`."""
        together, _ = JOINS[self.join]
        return float(together(np.abs(gaps), axis=0)) ** self.power

    def binning(self, h: Histogram) -> float:
        """Bound of what scores, instead of the middles of their buckets, change."""
        reach = np.abs(self.gaps(h)) @ (rows_of(h) * np.diff(h.edges) / 2)
        return float(reach.max() if self.join == "max" else reach.sum())

    def span(self, h: Histogram, asked: Asked) -> Span:
        """Return value and interval of the error, before binning."""
        total = h.rows
        if total <= 0:
            return self.no_span()
        firm = total > FIRM * h.rows_std
        simulated = simulate(h, asked.seed, asked.what)
        weights = self.gaps(h)
        if not weights.any():
            return self.no_span()
        gap = weights @ residuals(h)
        tails = (0.5 - asked.level / 2, 0.5 + asked.level / 2)
        plug_in = self.joined(gap)
        value, noise, noise_only, hidden = plug_in, 0.0, None, False
        if h.noisy:
            by_noise = self.through(weights, simulated.noise)
            noise_only = self._inverted(gap, by_noise, tails)
            value = noise_only.corrected**self.power
            noise = float(np.std(noise_only.replicates**self.power))
            limit = noise_only.limit**self.power
            hidden = noise_only.low <= 0 and limit > HIDDEN * self.scale
        held = (value, plug_in) if self.to_plug_in else (value,)
        if asked.rows == "these":
            if noise_only is None:
                return Span(value, value, value, 0.0, 0.0, firm)
            alone = self._span(noise_only, held, 0.0, noise, firm, hidden)
            return self.opened(alone, h, asked)
        deviations = self.through(weights, simulated.sampling)
        if h.noisy:
            deviations += by_noise
        both = self._inverted(gap, deviations, tails)
        if self.debiased:
            held = (both.corrected**self.power,)
        sampling = math.sqrt(max(float(np.var(both.replicates**self.power)) - noise**2, 0.0))
        span = self._span(both, held, sampling, noise, firm, hidden)
        return self.opened(span, h, asked)

    def opened(self, span: Span, h: Histogram, asked: Asked) -> Span:
        """Return the span, widened by the gaps of bins that may have no rows."""
        return span

    def _inverted(
        self, gap: Floats, deviations: NDArray[np.float32], tails: tuple[float, float]
    ) -> Inverted:
        """Return high end and limit for spread-out true gaps, low end for concentrated ones."""
        error = deviations.std(axis=0, dtype=np.float64)
        dense, sparse = (
            invert(gap, direction, lambda part: deviations[:, part], REPLICATES, self.join, tails)
            for direction in (spread_out(gap, error), concentrated(gap, error))
        )
        inverted = replace(
            dense,
            low=min(dense.low, sparse.low),
            corrected=(dense.corrected + sparse.corrected) / 2,
        )
        if not self.band:
            return inverted
        reach = float(np.quantile(np.abs(deviations).max(axis=1), tails[1]))
        single = np.quantile(deviations, tails[1], axis=0)
        low = max(float(np.abs(gap).max()) - reach, 0.0)
        return replace(inverted, low=low, limit=float((np.abs(gap) + single).max()))

    def _span(
        self,
        inverted: Inverted,
        held: tuple[float, ...],
        sampling: float,
        noise: float,
        firm: bool,
        hidden: bool,
    ) -> Span:
        """Return the interval, extended to contain `held`, whose first number is the value."""
        low, high = inverted.low**self.power, inverted.limit**self.power
        return Span(held[0], min(low, *held), max(high, *held), sampling, noise, firm, hidden)


@dataclass(frozen=True)
class Simulated:
    """Deviations of residuals from the truth, (replicates, buckets) each."""

    noise: NDArray[np.float32]
    sampling: NDArray[np.float32]


@lru_cache(maxsize=8)
def simulate(h: Histogram, seed: int, what: str) -> Simulated:
    """Draw the change of residuals by noise and by the choice of rows."""
    rng = stream(seed, Purpose.BOOTSTRAP, what=f"calibration {what}")
    size = (REPLICATES, h.buckets)
    noise = np.zeros(size, np.float32)
    if h.noisy:
        negative, positive = h.draws(rng, REPLICATES).transpose(1, 0, 2)
        noise = (positive * (1 - h.middles) - negative * h.middles).astype(np.float32)
    n, p = monotone_counts(h)
    std = np.sqrt(p * (1 - h.middles) ** 2 + n * h.middles**2).astype(np.float32)
    return Simulated(noise, std * rng.standard_normal(size, np.float32))


def rows_of(h: Histogram) -> Floats:
    """Return the rows of each bucket, not negative, (buckets,)."""
    return np.asarray(monotone_counts(h).sum(axis=0))


def residuals(h: Histogram) -> Floats:
    """Return the summed outcome - score of each bucket, (buckets,)."""
    return np.asarray(h.counts[1] * (1 - h.middles) - h.counts[0] * h.middles)


def members_of(bins: Integers, number: int) -> Floats:
    """Return the membership of buckets in bins, (bins, buckets) of 0 and 1."""
    return np.asarray(np.arange(number)[:, None] == bins, np.float64)


def equal_width(h: Histogram, bins: int = BINS) -> Integers:
    """Return the bin that contains each bucket's middle, (buckets,)."""
    return bin_index(h.middles, bins)


def equal_mass(h: Histogram, bins: int = BINS) -> Integers:
    """Return the bin of each bucket for bins of equal numbers of rows, (buckets,)."""
    rows = rows_of(h)
    share = (np.cumsum(rows) - rows / 2) / max(float(rows.sum()), 1e-300)
    return bin_index(np.clip(share, 0.0, 1.0), bins)
