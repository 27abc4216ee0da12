"""The temperature at which confidence meets accuracy, from one query about many temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.questions import AccuracyGap
from fedcal.core.checks import positive, unused, whole
from fedcal.privacy import Federation, make_plan
from fedcal.privacy.curator import Release
from fedcal.strategies.base import FederatedStrategy
from fedcal.units import UNITS


class FedGap(FederatedStrategy):
    """Sums of (correct - confidence) at `points` temperatures, which rise with the temperature.

    Privacy: the federation's unit and trust; a row adds less than 1 to each sum.

    Parameters
    ----------
    federation : public facts and budget; each round sends one query, and releases are added up
    points : temperatures, evenly spaced in log T from 1/2 to 3
    clip : the most that a client adds to each sum, in rows; only for unit `user` with privacy;
        None = 5
    """

    name = "fedgap"
    examples = ({}, {"points": 5})

    def __init__(
        self, federation: Federation, *, points: int = 9, clip: float | None = None, **base: Any
    ) -> None:
        if not (federation.private and UNITS[federation.unit].whole_client):
            unused("only whole clients are clipped, and only with privacy", clip=clip)
        self.classes = federation.classes
        self.temperatures = np.geomspace(0.5, 3.0, whole("points", points, 2, 100))
        self.sums = np.zeros(points)
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
        return AccuracyGap(tuple(self.temperatures.tolist()))

    def update(self, release: Release) -> None:
        """Add the release to the sums."""
        self.sums += release.values

    def result(self) -> TemperatureScaling:
        """Return the temperature with the smallest sums of the wrong sign on both sides."""
        if not self.sums.any():
            return TemperatureScaling(1.0, self.classes)
        over, under = np.maximum(self.sums, 0.0), np.maximum(-self.sums, 0.0)
        wrong = np.cumsum(over) - over + under.sum() - np.cumsum(under)
        return TemperatureScaling(float(self.temperatures[wrong.argmin()]), self.classes)
