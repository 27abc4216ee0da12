"""Without privacy: the order statistic of split conformal prediction, by looking ever closer."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedcal.core.types import Floats, override
from fedcal.mechanisms import Gaussian
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.queries.conformal import SetGaps
from fedcal.queries.declared import Question, Range
from fedcal.strategies.methods.quantiles.base import QuantileRule, Wanted
from fedcal.units.bounding import Bound

POINTS = 100
"""Thresholds of a round: six rounds find a score up to 1e-12, which scores are rounded to."""


class Exact(QuantileRule):
    """The ceil((n + 1) (1 - alpha))-th smallest score of each part (Papadopoulos et al. 2002).

    Each round asks for the sums at thresholds between the last one that is too low and the first
    one that is not; of several parts all thresholds are asked of all. For other label shares the
    sums are of each label, and put together here (`fedcal.conformal.label_shift`).
    """

    name = "exact"
    rounds = 6
    opening: SetGaps

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        by_label = {"by": "class"} if wanted.shift else {}
        self.opening = SetGaps(
            federation.classes,
            np.array([0.5, 1.0]),
            **{**wanted.asked, **by_label},
            need=np.zeros(1),  # whole numbers of rows, which the ring adds up exactly
        )
        parts = 1 if wanted.shift else self.opening.parts
        self._low, self._high = np.full(parts, -1.0), np.ones(parts)
        self._each = max(POINTS // parts, 16)
        self.fewest = math.ceil(round((1.0 - self.alpha) / self.alpha, 9))
        self._ask()
        self.bound, self.prefers = Bound(self.opening.lengths()), (Gaussian,)

    @classmethod
    @override
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        sampled = federation.sampling_rate < 1
        return {
            "it releases exact sums, and the run promises privacy": federation.private,
            "its rounds look ever closer at the same rows, and sampling takes others": sampled,
            "its number of thresholds is not open to choice": bool(wanted.bins),
        }

    def _ask(self) -> None:
        """Take thresholds between low and high, of every part."""
        between = [
            np.linspace(max(low, 0.0), high, self._each + 1)[0 if low < 0 else 1 :]
            for low, high in zip(self._low, self._high, strict=True)
        ]
        thresholds = np.unique(np.concatenate([*between, [1.0]]))
        self.opening = replace(self.opening, thresholds=thresholds)

    def questions(self) -> tuple[Question, ...]:
        """Return questions for sums at any thresholds."""
        most = len(self._low) * (self._each + 1) + 1
        longest = replace(self.opening, thresholds=np.linspace(0.0, 1.0, most))
        within = Range(0.0, 1.0, 1, most)
        return (Question.like(longest, (1, self.rounds), thresholds=within),)

    def learn(self, release: Release) -> Floats:
        """Return the first threshold with enough rows below it."""
        thresholds = self.opening.thresholds
        sums = release.values.reshape(self.opening.parts, -1)
        rows = np.round(sums[:, -1])  # at 1 all are in
        self.counted = tuple(rows.tolist()), 0.0
        levels = [self._level(int(n)) for n in rows]
        if shift := self.wanted.shift:
            need = (1.0 - self.alpha) * shift.weights
            sums, levels = (shift.weights @ sums - need @ rows)[None], [float(need.max())]
        for part, each in enumerate(sums):
            enough = np.flatnonzero(each >= levels[part] - 1e-6 * min(1.0, abs(levels[part])))
            if not len(enough):
                self._low[part] = self._high[part] = 1.0
                continue
            first = int(enough[0])
            self._high[part] = thresholds[first]
            self._low[part] = thresholds[first - 1] if first else self._low[part]
        self._ask()
        return self._high.copy()

    def _level(self, rows: int) -> float:
        """Return the sum that a threshold must reach; if it exceeds the rows, all labels are in."""
        return (rows + 1) * (1.0 - self.alpha)

    def reaches(self, rows: float | None) -> bool:
        """Return whether the rank exists in a part with as many rows as the others."""
        each = int((rows or 0.0) / len(self._low))
        return self._level(each) <= each

    @property
    @override
    def whose(self) -> str:
        return "for a row that is exchangeable with the clients' rows."

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Guarantee of split conformal prediction."""
        return (self.promise,)
