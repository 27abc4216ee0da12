"""The temperature at which confidence meets accuracy, from queries about many temperatures."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.questions.search import AccuracyGap
from fedcal.core.checks import unused
from fedcal.core.options import Positive
from fedcal.privacy import Plan, Range
from fedcal.privacy.curator import Release
from fedcal.strategies.base import FederatedStrategy, integer


class FedGap(FederatedStrategy):
    """Sums of (correct - confidence) at `points` temperatures, a round each; they rise with it.

    Privacy: the federation's unit and trust; a row adds less than 1 to each sum.

    Parameters
    ----------
    federation : public facts and budget; each round sends one query
    points : temperatures, evenly spaced in log T from 1/2 to 3
    clip : the most that a client adds to each sum, in rows; only for unit `user` with privacy;
        None = 5
    """

    name = "fedgap"
    examples = ({}, {"points": 5})

    points: Annotated[int, integer(2, 100)] = 9
    clip: Positive | None = None

    def prepare(self) -> Plan:
        """Return the plan of the rounds; the settings above are set and checked."""
        if not self.hides_clients:
            unused("only whole clients are clipped, and only with privacy", clip=self.clip)
        self.temperatures = np.geomspace(0.5, 3.0, self.points)
        self.sums = np.zeros(self.points)
        self.check_rounds(self.points)
        return self.plan_for(self.query(1), (self.clip or 5.0,), self.points)

    def query(self, round_number: int) -> AccuracyGap:
        """Return a query about the next temperature."""
        return AccuracyGap(float(self.temperatures[round_number - 1]))

    def moving(self) -> dict[str, Range]:
        """Return the range of what differs between queries."""
        return {"temperatures": Range(0.4, 3.1)}

    def update(self, release: Release) -> None:
        """Keep the sum at its temperature."""
        self.sums[release.round - 1] = release.values[0]

    def result(self) -> TemperatureScaling:
        """Return the temperature with the smallest sums of the wrong sign on both sides."""
        if not self.sums.any():
            return TemperatureScaling(1.0, self.classes)
        over, under = np.maximum(self.sums, 0.0), np.maximum(-self.sums, 0.0)
        wrong = np.cumsum(over) - over + under.sum() - np.cumsum(under)
        return TemperatureScaling(float(self.temperatures[wrong.argmin()]), self.classes)
