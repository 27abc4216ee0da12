"""Without privacy: the order statistic of split conformal prediction, by looking ever closer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcal.bounding import Bound
from fedcal.conformal.levels import Nothing, pac_level
from fedcal.mechanisms import Gaussian
from fedcal.privacy.federation import Federation
from fedcal.queries.conformal import SetGaps
from fedcal.release import Release
from fedcal.strategies.quantiles.base import QuantileRule, Wanted, of_whom
from fedcal.types import Floats

POINTS = 100
"""Thresholds of a round: six rounds find a score up to 1e-12, which scores are rounded to."""


class Exact(QuantileRule):
    """The ceil((n + 1) (1 - alpha))-th smallest score (Papadopoulos et al. 2002), of each part.

    Each round asks for the sums at thresholds between the last one that is too low and the first
    one that is not; of several parts all thresholds are asked of all.
    """

    name = "exact"
    rounds = 6

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        self._need = 1.0 - wanted.goal.alpha
        ends = np.array([0.5, 1.0])
        self._asked = SetGaps(
            federation.classes,
            ends,
            **wanted.score,
            need=np.array([self._need]),
            average=wanted.average,
        )
        self._low, self._high = np.full(self._asked.parts, -1.0), np.ones(self._asked.parts)
        self._ask()
        self.opening = self._asked
        self.bound, self.prefers = Bound(self._asked.lengths()), (Gaussian,)

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """With privacy."""
        if federation.private:
            return "it releases exact sums, and the run promises privacy"
        return "its number of thresholds is not open to choice" if wanted.bins else ""

    def _ask(self) -> None:
        """Thresholds between low and high, of every part."""
        each = max(POINTS // len(self._low), 16)
        between = [
            np.linspace(max(low, 0.0), high, each + 1)[0 if low < 0 else 1 :]
            for low, high in zip(self._low, self._high, strict=True)
        ]
        thresholds = np.unique(np.concatenate([*between, [1.0]]))
        self._asked = replace(self._asked, thresholds=thresholds)

    def query(self, number: int) -> SetGaps:
        """Sums at thresholds."""
        return self._asked

    def learn(self, release: Release) -> Floats:
        """The first threshold where enough rows are."""
        thresholds = self._asked.thresholds
        sums = release.values.reshape(len(self._low), -1)
        rows = np.round(sums[:, -1] / (1.0 - self._need))  # at 1 all are in
        for part, each in enumerate(sums):
            enough = np.flatnonzero(each >= self._level(int(rows[part])) - 1e-6)
            if not len(enough):
                self._low[part] = self._high[part] = 1.0
                continue
            first = int(enough[0])
            self._high[part] = thresholds[first]
            self._low[part] = thresholds[first - 1] if first else -1.0
        self._ask()
        return self._high.copy()

    def _level(self, rows: int) -> float:
        """What the sum must reach; infinite where only all labels do."""
        goal = self.wanted.goal
        if goal.promise == "marginal":
            return self._need if rows else np.inf
        found = np.ceil(pac_level(rows, goal.alpha, Nothing(), goal.confidence) - 1e-6)
        return float(found - self._need * rows) if found <= rows else np.inf

    def reaches(self, rows: float | None) -> bool:
        """By the rank, of a part with as many rows as the others."""
        each = int((rows or 0.0) / len(self._low))
        return self._level(each) <= self.wanted.goal.alpha * each

    @property
    def guarantee(self) -> tuple[str, ...]:
        """That of split conformal prediction."""
        w = self.wanted
        whose = "for a row that is exchangeable with the clients' rows."
        if w.average:
            whose = "for a row of a new client that is exchangeable with these clients."
        return (of_whom(w.goal, w.score.get("by", "none"), whose),)
