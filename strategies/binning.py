"""Histogram calibrators over a federation: FedBin and FedBBQ (Maddock et al., Algorithm 1)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from fedcal.calibrators import BBQ, Calibrator, HistogramBinning, WeightedBinning
from fedcal.calibrators.histogram import noise_weight, tables
from fedcal.checks import one_of, positive, whole
from fedcal.privacy.bounding import Bound, Rule
from fedcal.privacy.plan import Federation, make_plan
from fedcal.query import Ask
from fedcal.release import Release
from fedcal.types import Floats
from strategies.base import CalibrationStrategy

Weighting = Literal["none", "all", "changed"]


class _Binning(CalibrationStrategy):
    """One histogram of positives and one of negatives per class, summed over clients.

    By default one round with everybody: repeated rounds count a client again and add noise.

    Weighting mixes the calibrator with the model, g~_j = a_j g_j + (1 - a_j) p_j. Without privacy
    a_j is the share of class-j rows that were aggregated; the denominator takes one further
    secure-sum query to everybody (the paper says that none is needed; it does not say how the
    server would know the number). With privacy a_j is signal over expected noise (B.5).

    Privacy: user-level, zero-out, central. clipping="per_class": each class's P is clipped to L2
    norm clip_positive, each N to clip_negative; noise std P: clip_positive sqrt(2 c) sigma, N:
    clip_negative sqrt(2 c) sigma (Lemma B.7). "joint": the array (P / clip_positive,
    N / clip_negative) is clipped to norm 1, noise std clip_positive sigma and clip_negative sigma.
    With two classes only class 1 is sent and c counts as 1.

    Parameters
    ----------
    federation : public facts and budget; default 1 round
    bins_exponent : M, 2**M bins of equal width
    weighting : "none", "all" rows, or only rows whose prediction the calibrator has "changed"
    clipping, clip_positive, clip_negative : as above, in rows
    """

    calibrator: ClassVar[type[HistogramBinning | BBQ]]

    def __init__(
        self,
        federation: Federation,
        *,
        bins_exponent: int = 7,
        weighting: Weighting = "none",
        clipping: Literal["per_class", "joint"] = "per_class",
        clip_positive: float = 2.0,
        clip_negative: float = 10.0,
        **base: Any,
    ) -> None:
        self.classes = federation.classes
        self.bins = 2 ** whole("bins_exponent", bins_exponent, 1, 16)
        self.weighting = one_of("weighting", weighting, ("none", "all", "changed"))
        one_of("clipping", clipping, ("per_class", "joint"))
        norms = (positive("clip_positive", clip_positive), positive("clip_negative", clip_negative))
        rule: Rule = "per_block" if clipping == "per_class" else "joint"
        m = tables(self.classes)
        bound = Bound((self.bins,) * (2 * m), (norms[0],) * m + (norms[1],) * m, rule)
        self._lengths = bound.lengths
        self._sum = np.zeros((2, m, self.bins))
        self._variance = np.zeros((2, m, self.bins))
        self._class_rows = np.zeros(self.classes)
        counting = 0 if self.weighting == "none" else 1
        plan = make_plan(
            federation, rounds=federation.rounds or 1, bound=bound, counting_rounds=counting
        )
        super().__init__(plan, **base)

    def query(self, round_number: int) -> Ask:
        """Class histograms; before them, where needed, everybody's rows per class."""
        if not self.plan.private and self.weighting != "none" and round_number == 1:
            return Ask("class_counts", (self.classes,), everyone=True)
        return Ask("class_histograms", self._lengths, {"bins": self.bins})

    def update(self, release: Release) -> None:
        """Accumulate counts and the variance of their noise."""
        if release.kind == "class_counts":
            self._class_rows = release.values
            return
        self._sum = self._sum + release.values.reshape(self._sum.shape)
        self._variance = self._variance + (release.std**2).reshape(self._sum.shape)

    def result(self) -> Calibrator:
        """The calibrator of the accumulated histograms."""
        positive_rows, negative_rows = self._sum
        base = self.calibrator.from_histograms(positive_rows, negative_rows, self.classes)
        if self.weighting == "none":
            return base
        rows: Literal["all", "changed"] = "all" if self.weighting == "all" else "changed"
        return WeightedBinning(base, self._weights(positive_rows.sum(axis=1)), rows)

    def _weights(self, seen: Floats) -> Floats:
        if self.plan.private:
            return noise_weight(seen, np.sqrt(self._variance[0, :, 0]), self.bins)
        there = self._class_rows[-len(seen) :]  # of two classes, the second
        share = np.divide(seen, there, out=np.ones_like(seen), where=there > 0)
        return np.clip(share, 0.0, 1.0)


class FedBin(_Binning):
    """Federated histogram binning; by default without weighting, the paper's naive baseline."""

    name = "fedbin"
    calibrator = HistogramBinning


class FedBBQ(_Binning):
    """Federated BBQ; by default weighted in all rows, the paper's final protocol."""

    name = "fedbbq"
    calibrator = BBQ

    def __init__(
        self, federation: Federation, *, weighting: Weighting = "all", **options: Any
    ) -> None:
        super().__init__(federation, weighting=weighting, **options)
