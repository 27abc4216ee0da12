"""Smoothing fitted by one query at two temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcal.calibrators import Smoothing
from fedcal.clients.questions import AccuracyGap
from fedcal.core.checks import positive, unused
from fedcal.privacy import Federation, make_plan
from fedcal.privacy.curator import Release
from fedcal.strategies.base import FederatedStrategy
from fedcal.units import UNITS


class FedSmooth(FederatedStrategy):
    """`Smoothing` whose mean confidence equals the accuracy.

    Privacy: the federation's unit and trust; a row adds less than 1 to each sum.

    Parameters
    ----------
    federation : public facts and budget; each round sends one query, and releases are added up
    clip : the most that a client adds to each sum, in rows; only for unit `user` with privacy;
        None = 5
    """

    name = "fedsmooth"
    examples = ({},)

    def __init__(self, federation: Federation, *, clip: float | None = None, **base: Any) -> None:
        if not (federation.private and UNITS[federation.unit].whole_client):
            unused("only whole clients are clipped, and only with privacy", clip=clip)
        self.classes, self.sums = federation.classes, np.zeros(2)
        question = self.query(1)
        norm = 5.0 if clip is None else positive("clip", clip)
        plan = make_plan(
            federation,
            rounds=federation.rounds or 1,
            bound=question.bound(question.part(federation.unit), (norm,)),
            row_sums=question.row_sums,
        )
        super().__init__(plan, **base)

    def query(self, round_number: int) -> AccuracyGap:
        """Return the same query each time."""
        return AccuracyGap((1.0, 1e6))

    def update(self, release: Release) -> None:
        """Add the release to the sums."""
        self.sums += release.values

    def result(self) -> Smoothing:
        """Return the calibrator with the weight of both sums."""
        gap, even = self.sums.tolist()
        return Smoothing(Smoothing.best(-gap, even - gap), self.classes)
