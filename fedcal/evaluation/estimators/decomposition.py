"""The Brier score as reliability - resolution + uncertainty."""

from __future__ import annotations

import math

import numpy as np

from fedcal.core.types import Floats
from fedcal.evaluation.estimators.gap_metric import BINS, equal_width, members_of, residuals
from fedcal.evaluation.estimators.metrics import Brier, BrierUncertainty, SmoothMetric, mean_reach
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import FIRM


class BrierResolution(SmoothMetric):
    """Reliability + uncertainty - Brier score: how well scores separate rows.

    The generalized resolution of Stephenson, Coelho & Jolliffe 2008 (eq. 8): with scores that
    differ within a bin it is what makes the decomposition of Murphy 1973 exact. The reliability
    in it has the noise's variance taken off each squared gap, which it would bias.
    """

    name = "brier_resolution"
    heading = "Brier: resolution"
    bounds = (-math.inf, 0.25)
    scale = 0.25

    def value(self, h: Histogram) -> float:
        """Return reliability + uncertainty - Brier score; NaN without rows."""
        if h.counts.sum() <= 0:
            return math.nan
        _, square, rows, total = self._bins(h)
        parts = float((square / (rows * total)).sum())
        return parts + BrierUncertainty(0.0).value(h) - Brier().value(h)

    def gradient(self, h: Histogram) -> Floats:
        """Return the gradient of the three parts, with the noise's variance held fixed."""
        members, square, rows, total = self._bins(h)
        gap = members @ residuals(h)
        by_residual = (2 * gap / (rows * total)) @ members
        by_row = -(square / (rows**2 * total)) @ members - (square / (rows * total**2)).sum()
        of_residual = np.stack([-h.middles, 1 - h.middles])
        own = by_residual * of_residual + by_row
        return np.asarray(own + BrierUncertainty(0.0).gradient(h) - Brier().gradient(h))

    def binning(self, h: Histogram) -> float:
        """Return the Brier score's bound plus that of squared gaps of at most 1 within a bucket."""
        return Brier().binning(h) + 2 * mean_reach(h, lambda scores: np.stack([scores, scores]))

    def warning(self, h: Histogram) -> str:
        """Return a warning if noisy bins are left out, which makes the value too small."""
        left_out = h.noisy and len(self._bins(h)[0]) < BINS
        return "bins that noise may have filled are left out" if left_out else ""

    def denominators(self, h: Histogram) -> Floats:
        """Return the weights of the number of all rows, (1, 2, buckets)."""
        return np.ones((1, *h.counts.shape))

    @staticmethod
    def _bins(h: Histogram) -> tuple[Floats, Floats, Floats, float]:
        """Return bins that surely have rows: buckets, squared gaps less noise, rows, all rows."""
        members = members_of(equal_width(h), BINS)
        rows = members @ h.counts.sum(axis=0)
        used = rows > FIRM * h.noise_std(np.stack([members, members], axis=1))
        members, rows = members[used], rows[used]
        noise = h.noise_std(np.stack([-members * h.middles, members * (1 - h.middles)], axis=1))
        square = (members @ residuals(h)) ** 2 - noise**2
        return members, square, rows, float(h.counts.sum())
