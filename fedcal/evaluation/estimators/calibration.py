"""Calibration errors: distances of scores from the rates of outcome 1 among their rows.

An error is the sum of the absolute gaps of bins, and a gap is a weighted sum of the residuals
r_b = sum over the rows of bucket b of (outcome - score), with scores read at the middles. It is
not a smooth function of counts, and noise makes it too large:

* the value is what the pooled rows show: without noise the plug-in, with noise the error under
  which the noisy plug-in would be its own median (`fedcal.metrics.bootstrap`; the mean of the two
  answers for gaps spread over all bins and for gaps in few);
* the interval inverts the same test for noise and sampling together, and is for what infinitely
  many rows would show. It is extended to the value, so that no value lies outside its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.slope_intercept import logit
from fedcal.evaluation.histogram import Histogram, monotone_counts
from fedcal.evaluation.intervals import FIRM, Asked, Estimate, Metric, Span
from fedcal.metrics.binning import bin_index
from fedcal.metrics.bootstrap import Inverted, concentrated, invert, spread_out
from fedcal.metrics.gap_change import holm

BINS = 15

REPLICATES = 400

HIDDEN = 0.025
"""Noise hides a calibration error that may be 0, if it may also be more than this part of its
`scale`: more than 1 point of ECE."""


class Ece(Metric):
    """Sum over 15 bins of equal width of |sum of (outcome - score)| / n (Naeini et al. 2015)."""

    name = "ece"
    heading = "ECE, %"
    of_score: ClassVar = {
        "positive": "ECE of the positive class, %",
        "confidence": "top-label ECE, %",
    }
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

    def span(self, h: Histogram, asked: Asked) -> Span:
        """Return value and interval of the error, before binning."""
        if h.rows <= 0 or not (weights := self.gaps(h).T.astype(np.float32)).any():
            return self.no_span()
        by_noise, by_rows = (draws @ weights for draws in simulate(h, asked.seed, asked.what))
        value, noise, sampling, hidden = self.value(h), 0.0, 0.0, False
        low = high = value
        if h.noisy:
            inverted = self.inverted(h, by_noise, asked.level)
            value, noise = inverted.corrected, float(np.std(inverted.replicates))
            low, high = inverted.low, inverted.limit
            hidden = low <= 0 and high > HIDDEN * self.scale
        if asked.rows == "new":
            both = self.inverted(h, by_rows + by_noise, asked.level)
            low, high = both.low, both.limit
            sampling = math.sqrt(max(float(np.var(both.replicates)) - noise**2, 0.0))
        firm = h.rows > FIRM * h.rows_std
        return Span(value, min(low, value), max(high, value), sampling, noise, firm, hidden)

    def inverted(self, h: Histogram, deviations: NDArray[np.float32], level: float) -> Inverted:
        """Return high end and limit for spread-out true gaps, low end for concentrated ones.

        `deviations` are draws of observed less true gaps, (replicates, bins).
        """
        gap, error = self.gaps(h) @ residuals(h), deviations.std(axis=0, dtype=np.float64)
        tails = (0.5 - level / 2, 0.5 + level / 2)
        dense, sparse = (
            invert(gap, direction, lambda part: deviations[:, part], REPLICATES, "sum", tails)
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
    return CalibrationTest(*_summed([statistic], 2))


def groups_test(gaps: Iterable[Estimate]) -> CalibrationTest:
    """Sum over groups of gap**2 / variance: chi-squared if each group is calibrated in the large.

    Groups whose gaps cancel in the whole are found together where no single one stands out.

    Parameters
    ----------
    gaps
        mean score minus outcome of each group; groups of different rows, so independent
    """
    sizes = [_size(e) ** 2 for e in gaps if math.isfinite(e.value)]
    return CalibrationTest(*_summed(sizes, 1)).bounded()


def single_groups(gaps: Mapping[str, Estimate]) -> dict[str, float]:
    """Return p-values that groups are calibrated in the large, corrected for their number.

    Parameters
    ----------
    gaps
        group -> mean score minus outcome; groups without a value are left out
    """
    known = {group: e for group, e in gaps.items() if math.isfinite(e.value)}
    return holm({group: math.erfc(_size(e) / math.sqrt(2)) for group, e in known.items()})


def _size(gap: Estimate) -> float:
    """Return a gap's excess over its binning bound, in standard deviations."""
    excess, std = max(abs(gap.value) - gap.binning, 0.0), math.hypot(gap.sampling, gap.noise)
    return excess / std if std else (math.inf if excess else 0.0)


def together(tests: Iterable[CalibrationTest]) -> CalibrationTest:
    """Test all groups' `cox` at once: the sum of chi-squared statistics of 2 degrees each."""
    return CalibrationTest(*_summed([t.statistic for t in tests if math.isfinite(t.statistic)], 2))


def _summed(statistics: Sequence[float], degrees: int) -> tuple[float, float]:
    """Return the sum of independent chi-squared statistics of `degrees` each, and its p-value."""
    from scipy.special import chdtrc

    statistic = math.fsum(statistics)
    return statistic, float(chdtrc(degrees * len(statistics), statistic)) if statistics else 1.0
