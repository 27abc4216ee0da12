"""The area under the ROC curve as a mean over rows, given a rough reference of the scores.

AUC is bilinear in the distributions of the scores of positive and of negative rows. From a
reference that is off by d_p and d_n its value is the reference's, plus the mean of the influence
function there, plus a remainder of the size d_p d_n (one-step estimator; van der Vaart 1998,
section 20). So the reference may be coarse and noisy, and what is then asked for is a mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcal.calibrators.fits.noisy_counts import norm_sub
from fedcal.core.types import Floats
from fedcal.mechanisms import NoiseLaw

_FLOOR = 0.02
"""Least count of each bucket, as a fraction of the mean count, so that none is empty."""

_LEAST_SHARE = 0.02
"""Least fraction of rows with either outcome: the influence function divides by it."""


@dataclass(frozen=True, eq=False)
class AucReference:
    """Reference distributions of scores by outcome: positive counts in buckets.

    Within a bucket scores are taken to be uniform in `fedcal.metrics.buckets.arcsine`.

    Attributes
    ----------
    counts
        (2, buckets), outcome 0 and 1, all > 0; buckets of equal width in `arcsine`
    """

    counts: Floats

    @classmethod
    def of(cls, noisy: Floats) -> AucReference:
        """Return a reference from noisy counts (2, buckets), made positive by Norm-Sub."""
        counts = norm_sub(noisy.ravel()).reshape(noisy.shape)
        return cls(counts + _FLOOR * max(float(counts.mean()), 1.0))

    @property
    def shares(self) -> tuple[Floats, Floats]:
        """Fractions of the rows of outcome 0, and of outcome 1, in each bucket."""
        return self.counts[0] / self.counts[0].sum(), self.counts[1] / self.counts[1].sum()

    @property
    def prevalence(self) -> float:
        """Share of rows of outcome 1, at least .02 and at most .98."""
        share = float(self.counts[1].sum() / self.counts.sum())
        return min(max(share, _LEAST_SHARE), 1.0 - _LEAST_SHARE)

    @property
    def auc(self) -> float:
        """AUC of the reference itself; ties within a bucket count one half."""
        negative, positive = self.shares
        return float(positive @ (np.cumsum(negative) - negative / 2))

    @property
    def values(self) -> Floats:
        """AUC plus the influence function at the edges of the buckets, (2, buckets + 1).

        A row of outcome 1 with score s has auc + (F_0(s) - auc) / share of outcome 1, one of
        outcome 0 auc + (1 - F_1(s) - auc) / share of outcome 0. Their mean estimates the AUC.
        """
        below, above = (np.concatenate([[0.0], np.cumsum(part)]) for part in self.shares)
        auc, share = self.auc, self.prevalence
        return auc + np.stack([(1.0 - above - auc) / (1.0 - share), (below - auc) / share])

    @property
    def variance(self) -> float:
        """Variance of the value of a row, if the reference were the truth."""
        knots = self.values - self.auc
        left, right = knots[:, :-1], knots[:, 1:]
        mean_square = (left**2 + left * right + right**2) / 3.0  # of a line, along a bucket
        return float((mean_square * self.counts).sum() / self.counts.sum())

    def remainder(self, counts: Floats) -> float:
        """Return the error of the one-step estimate by this reference if `counts` were true."""
        values = (self.values[:, :-1] + self.values[:, 1:]) / 2.0
        return float((values * counts).sum() / counts.sum()) - AucReference(counts).auc

    def redrawn(self, std: float, law: NoiseLaw, rng: np.random.Generator) -> tuple[float, float]:
        """Simulate the effect of noise of this std on each count by drawing it again.

        This is a parametric bootstrap on these counts (Ferrando et al. 2022).

        Returns
        -------
        tuple[float, float]
            Root mean square of the change of the reference's AUC; and of the remainder, or half
            of its .95 quantile, if that is larger
        """
        z = law.sample(rng, (_REDRAWN, *self.counts.shape))
        others = [AucReference.of(self.counts + std * one) for one in z]
        moved = [reference.auc - self.auc for reference in others]
        missed = [reference.remainder(self.counts) for reference in others]
        root = np.sqrt(np.mean(np.square([moved, missed]), axis=1))
        return float(root[0]), max(float(root[1]), float(np.quantile(np.abs(missed), 0.95)) / 2)

    @property
    def coarseness(self) -> float:
        """Error that the one-step estimate would have if every four buckets were merged.

        It stands for the error of these buckets against finer ones. For smoothly spread scores it
        is several times as large; it does not see scores that crowd within one bucket. The only
        bound that holds for all scores is a histogram's, sum p_i n_i / (2 P N).
        """
        merged = self.counts.reshape(2, -1, _MERGED).sum(axis=2)
        knots = np.arange(self.counts.shape[1] + 1) / _MERGED
        values = np.stack(
            [np.interp(knots, np.arange(len(x)), x) for x in AucReference(merged).values]
        )
        means = (values[:, :-1] + values[:, 1:]) / 2.0
        return abs(float((means * self.counts).sum() / self.counts.sum()) - self.auc)


_MERGED = 4  # of pairs the one-step estimate misses nothing, by symmetry
_REDRAWN = 100
