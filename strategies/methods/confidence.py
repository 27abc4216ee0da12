"""Histogram binning of the confidence by one query of counts (Luo et al., C.2.3).

The paper counts (correct, total), with sensitivity 2. (correct, wrong), the default here, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from fedcal.calibrators import Calibrator, Identity, TopLabelBinning
from fedcal.calibrators.top_label import Counts
from fedcal.core.checks import one_of, unused, whole
from fedcal.core.errors import InputError
from fedcal.core.types import override
from fedcal.mechanisms import MECHANISMS, Laplace, Mechanism, Unary
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO
from fedcal.privacy.noise_plan import Federation
from fedcal.queries import BinOutcomes, OutcomeCell
from fedcal.queries.base import Order
from fedcal.queries.declared import SEED, Range
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, nominal_clip, plan_for


class DPHistogram(FederatedStrategy):
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
    federation
        public facts and budget; one round
    bins
        of equal width
    counts
        "correct_wrong" or "correct_total"
    clip
        of unit `user` with privacy, in rows, and refused elsewhere; None = max(0.08 m, 1)
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy for
        unit `user` unless `clip` is given
    """

    name = "dp-histogram"
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
        check_rounds(self.name, federation, 1)
        self.classes = federation.classes
        self.bins = whole("bins", bins, 1, 2**16)
        one_of("counts", counts, get_args(Counts))
        self.counts: Counts = counts
        self.unary = federation.private and _encodes(federation)
        if self.unary and counts != "correct_wrong":
            raise InputError("mechanism 'unary' hides one cell: it needs counts = correct_wrong")
        query = self._question(federation.seed)
        if self.unary:
            unused("unary encoding sends one cell of each client", clip=clip)
            clips: tuple[float, ...] = ()
        else:
            limits = (0.08, 1.0, clip, rows_per_client)
            clips = (nominal_clip(self.name, federation, *limits),)
        self._values = np.zeros(0)
        law: type[Mechanism] = Unary if self.unary else Laplace
        order: Order = 2 if self.unary else 1
        super().__init__(plan_for(federation, query, clips, 1, order, prefers=(law,)), **base)

    @classmethod
    @override
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        return not _encodes(federation) and super().needs_rows(federation, settings)

    @override
    def query(self, round_number: int) -> BinOutcomes | OutcomeCell:
        return self._question(self.plan.client_seed)

    def moving(self) -> dict[str, Range]:
        """Return the range of the drawn cell's seed."""
        return {"seed": SEED} if self.unary else {}

    def _question(self, seed: int) -> BinOutcomes | OutcomeCell:
        if self.unary:
            return OutcomeCell(self.bins, seed)
        return BinOutcomes(self.bins, self.counts)

    def update(self, release: Release) -> None:
        """Keep the counts; all are exactly 0 if no client was asked, or none has rows."""
        if release.values.any():
            self._values = release.values

    def result(self) -> Calibrator:
        """Return the bins' confidences as a calibrator; the identity if nothing was learned."""
        if not len(self._values):
            return Identity(self.classes)
        first, second = np.split(self._values, 2)
        return TopLabelBinning.from_counts(first, second, self.classes, self.counts)


def _encodes(federation: Federation) -> bool:
    """Return whether each client's answer is encoded, which is so only if the user asks for it."""
    asked = federation.mechanism
    return asked != AUTO and MECHANISMS[asked].answers == "onehot"
