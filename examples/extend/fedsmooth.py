"""Smoothing fitted by queries at two temperatures."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators import Smoothing
from fedcal.clients.questions.search import AccuracyGap
from fedcal.core.checks import unused
from fedcal.core.options import Positive
from fedcal.privacy import Plan, Range
from fedcal.privacy.curator import Release
from fedcal.strategies.base import FederatedStrategy


class FedSmooth(FederatedStrategy):
    """`Smoothing` whose mean confidence equals the accuracy.

    Privacy: the federation's unit and trust; a row adds less than 1 to each sum.

    Parameters
    ----------
    federation : public facts and budget; two rounds send a query each
    clip : the most that a client adds to each sum, in rows; only for unit `user` with privacy;
        None = 5
    """

    name = "fedsmooth"
    examples = ({},)

    clip: Positive | None = None

    def prepare(self) -> Plan:
        """Return the plan of the rounds."""
        if not self.hides_clients:
            unused("only whole clients are clipped, and only with privacy", clip=self.clip)
        self.sums = np.zeros(2)
        self.check_rounds(2)
        return self.plan_for(self.query(1), (self.clip or 5.0,), 2)

    def query(self, round_number: int) -> AccuracyGap:
        """Return a query about the model's confidence, then about an even one."""
        return AccuracyGap((1.0, 1e6)[round_number - 1])

    def moving(self) -> dict[str, Range]:
        """Return the range of what differs between queries."""
        return {"temperatures": Range(1.0, 1e6)}

    def update(self, release: Release) -> None:
        """Keep the sum at its temperature."""
        self.sums[release.round - 1] = release.values[0]

    def result(self) -> Smoothing:
        """Return the calibrator with the weight of both sums."""
        gap, even = self.sums.tolist()
        return Smoothing(Smoothing.best(-gap, even - gap), self.classes)
