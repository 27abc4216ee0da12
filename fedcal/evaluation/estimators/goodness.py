"""Tests of the hypothesis that scores are calibrated, valid under noise and buckets.

P-values come from a chi-squared distribution. That a score is read at the middle of its bucket
could look like a gap; gaps are made smaller by as much as it can explain. So a p-value is right or
too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcal.core.types import Floats
from fedcal.evaluation.estimators.calibration import residuals, rows_of
from fedcal.evaluation.estimators.slope_intercept import logit
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import Estimate
from fedcal.metrics.holm import holm

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
    rows, noise = rows_of(h), _noise_root(h)
    spread = rows * h.middles * (1 - h.middles)

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


def _noise_root(h: Histogram) -> Floats:
    """Return residuals' noise by the variates of both rows of counts, (buckets, 2, variates)."""
    weights = np.stack([-h.middles, 1 - h.middles], axis=1)
    return np.asarray(weights[:, :, None] * h.root[:, None, :])
