"""Histogram binning of the confidence by one query of counts (Luo et al., C.2.3).

The paper counts (correct, total), with sensitivity 2. (correct, wrong), the default here, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from fedcal.calibrators import Calibrator, Identity, TopLabelBinning
from fedcal.calibrators.top_label import Counts
from fedcal.checks import one_of, positive, unused, whole
from fedcal.errors import InputError
from fedcal.privacy.bounding import Bound, Rule
from fedcal.privacy.plan import Federation, make_plan
from fedcal.query import Ask
from fedcal.release import Release
from fedcal.strategies.base import CalibrationStrategy


class DPHistogram(CalibrationStrategy):
    """Histogram binning of the confidence in the prediction, by one round of noisy counts.

    Each bin of the confidence gets its share of correct predictions; no prediction changes (see
    `TopLabelBinning`, also for counts below 0 and empty bins).

    Privacy: the federation's unit and trust, one release with Laplace noise unless the federation
    names another mechanism. Public: the federation and all parameters.

    * Unit `example`, add/remove of one row: a row adds 1 to one of the correct and wrong counts:
      L1 sensitivity 1 (ours). With counts="correct_total", the paper's, a correct row adds 1 to
      two of them: sensitivity 2, four times the variance of the noise.
    * Unit `user`, zero-out (replace under `local`): a client's counts are clipped to `clip` in L1
      norm, all by the same factor.
    * Unit `user`, trust `local` and mechanism `unary`: each client sends the cell of one of its
      rows, by optimal unary encoding (Wang et al. 2017). No clip; a client counts once.

    Parameters
    ----------
    federation : public facts and budget; one round
    bins : of equal width
    counts : "correct_wrong" or "correct_total"
    clip : of unit `user` with privacy, in rows, and refused elsewhere; None = max(0.08 m, 1)
    rows_per_client : m, the public nominal number of rows of a client; needed with privacy for
        unit `user` unless `clip` is given
    """

    name = "dp-histogram"
    most_noise, least_rows = 0.02, 150
    examples = ({}, {"counts": "correct_total"})

    def __init__(
        self,
        federation: Federation,
        *,
        bins: int = 15,
        counts: Counts = "correct_wrong",
        clip: float | None = None,
        rows_per_client: float | None = None,
        **base: Any,
    ) -> None:
        if federation.rounds not in (None, 1):
            raise InputError(f"dp-histogram asks once: rounds must be 1, got {federation.rounds}")
        self.classes = federation.classes
        self.bins = whole("bins", bins, 1, 2**16)
        one_of("counts", counts, get_args(Counts))
        self.counts: Counts = counts
        self.unary = federation.private and federation.mechanism == "unary"
        if self.unary and counts != "correct_wrong":
            raise InputError("mechanism 'unary' hides one cell: it needs counts = correct_wrong")
        bound = self._bound(federation, clip, rows_per_client)
        plan = make_plan(
            federation,
            rounds=1,
            bound=bound,
            mechanism="unary" if self.unary else "laplace",
            row_sums=not self.unary,
        )
        self._lengths = bound.lengths
        self._values = np.zeros(0)
        super().__init__(plan, **base)

    def _bound(
        self, federation: Federation, clip: float | None, rows_per_client: float | None
    ) -> Bound:
        """What one client, or one row, adds to the counts at most."""
        everything = (2 * self.bins,)
        if not federation.private:
            unused("without privacy nothing is clipped", clip=clip)
        if self.unary:
            unused("unary encoding sends one cell of each client", clip=clip)
            return Bound(everything, (2.0,))  # room for the 1, which a norm of 1 would cut
        if federation.unit == "example":
            unused("unit 'example' knows what a row adds", clip=clip)
            if self.counts == "correct_wrong":
                return Bound(everything, (1.0,), "joint", 1)
            rule: Rule = "per_block"  # a correct row adds 1 to each half: L1 norm 2, L2 sqrt(2)
            return Bound((self.bins, self.bins), (1.0, 1.0), rule, 1)
        if clip is None:
            if rows_per_client is None:
                if federation.private:
                    raise InputError(
                        "dp-histogram with unit 'user' needs rows_per_client, a public nominal "
                        "number of rows > 0, or clip"
                    )
                clip = 1.0  # not used
            else:
                clip = max(0.08 * positive("rows_per_client", rows_per_client), 1.0)
        return Bound(everything, (positive("clip", clip),), "joint", 1)

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """For the clip of unit `user`; what unary encoding hides needs none."""
        return federation.mechanism != "unary" and super().needs_rows(federation, settings)

    def query(self, round_number: int) -> Ask:
        """The counts, or one cell of each client."""
        if self.unary:
            params = {"bins": self.bins, "seed": self.plan.client_seed}
            return Ask("outcome_cell", self._lengths, params)
        return Ask("bin_outcomes", self._lengths, {"bins": self.bins, "counts": self.counts})

    def update(self, release: Release) -> None:
        """Keep the counts; all are exactly 0 where nobody was asked, or nobody has rows."""
        if release.values.any():
            self._values = release.values

    def result(self) -> Calibrator:
        """The confidences of the bins; the identity if nothing was learned."""
        if not len(self._values):
            return Identity(self.classes)
        first, second = np.split(self._values, 2)
        return TopLabelBinning.from_counts(first, second, self.classes, self.counts)
