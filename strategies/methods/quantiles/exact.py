"""Without privacy: the order statistic of split conformal prediction, by looking ever closer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcal.conformal.levels.levels import Nothing, pac_level
from fedcal.conformal.levels.weighted import exact_terms
from fedcal.conformal.pages.promises import of_whom
from fedcal.conformal.pages.reported import Reported
from fedcal.conformal.sets import ALL_LABELS
from fedcal.core.types import Floats, override
from fedcal.mechanisms import Gaussian
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.queries.conformal import SetCounts, SetGaps
from fedcal.queries.declared import Question, Range
from fedcal.queries.evaluation import names_text
from fedcal.strategies.methods.quantiles.base import QuantileRule, Wanted
from fedcal.units.bounding import Bound

POINTS = 100
"""Thresholds of a round: six rounds find a score up to 1e-12, which scores are rounded to."""


class Exact(QuantileRule):
    """The ceil((n + 1) (1 - alpha))-th smallest score of each part (Papadopoulos et al. 2002).

    Each round asks for the sums at thresholds between the last one that is too low and the first
    one that is not; of several parts all thresholds are asked of all. Where rows count by their
    label the sums are of each label, and put together here (`fedcal.conformal.levels.weighted`).
    """

    name = "exact"
    rounds = 6
    takes_aim, takes_report = True, True

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        ends = np.array([0.5, 1.0])
        self._asked = SetGaps(
            federation.classes,
            ends,
            **{**wanted.asked, **({"by": "class"} if wanted.aim else {})},
            need=np.zeros(1),  # whole numbers of rows, which the ring adds up exactly
            average=wanted.average,
        )
        parts = 1 if wanted.aim else self._asked.parts
        self._low, self._high = np.full(parts, -1.0), np.ones(parts)
        self._rows: tuple[float, ...] = ()
        self._ask()
        self._reported: Reported | None = None
        if wanted.report:
            self.rounds += 1
        self.opening = self._asked
        self.bound, self.prefers = Bound(self._asked.lengths()), (Gaussian,)

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Return why the rule cannot serve: with privacy, or if rounds ask different clients."""
        if federation.private:
            return "it releases exact sums, and the run promises privacy"
        if federation.sampling_rate < 1:
            return "its rounds look ever closer at the same rows, and sampling takes others"
        return "its number of thresholds is not open to choice" if wanted.bins else ""

    def _ask(self) -> None:
        """Thresholds between low and high, of every part."""
        between = [
            np.linspace(max(low, 0.0), high, self._each + 1)[0 if low < 0 else 1 :]
            for low, high in zip(self._low, self._high, strict=True)
        ]
        thresholds = np.unique(np.concatenate([*between, [1.0]]))
        self._asked = replace(self._asked, thresholds=thresholds)

    @property
    def _each(self) -> int:
        """Thresholds of each part in a round."""
        return max(POINTS // len(self._low), 16)

    def query(self, number: int) -> SetGaps | SetCounts | None:
        """Return the question for sums at thresholds; in the last round for rows of each group."""
        if number <= type(self).rounds:
            return self._asked
        return None if self._high[0] >= ALL_LABELS else self._second(float(self._high[0]))

    def questions(self) -> tuple[Question, ...]:
        """Return questions for sums at any thresholds, then for rows on both sides of any one."""
        rounds, parts = type(self).rounds, len(self._low)
        most = parts * (self._each + 1) + 1
        longest = replace(self._asked, thresholds=np.linspace(0.0, 1.0, most))
        within = Range(0.0, 1.0, 1, most)
        looks = Question.like(longest, (1, rounds), thresholds=within)
        if self.rounds == rounds:
            return (looks,)
        last = (self.rounds, self.rounds)
        return looks, Question.like(self._second(0.5), last, thresholds=Range(0.0, 1.0))

    def _second(self, threshold: float) -> SetCounts:
        by = {"by": "group", "groups": names_text(self.wanted.report)}
        ends = np.array([threshold, 1.0])
        return SetCounts(self._asked.classes, ends, **{**self.wanted.asked, **by})

    @property
    @override
    def reported(self) -> Reported | None:
        return self._reported

    def learn(self, release: Release) -> Floats:
        """Return the first threshold with enough rows below it."""
        if release.round > type(self).rounds:
            asked = self._second(float(self._high[0]))
            counts, names = asked.decode(release.values), asked.names
            self._reported = Reported(names, counts[: len(names)], 0.0)
            return self._high.copy()
        thresholds = self._asked.thresholds
        sums = release.values.reshape(self._asked.parts, -1)
        rows = np.round(sums[:, -1])  # at 1 all are in
        self._rows = tuple(rows.tolist())
        levels = [self._level(int(n)) for n in rows]
        if aim := self.wanted.aim:
            hit, need, level = exact_terms(aim, self.wanted.goal.alpha, rows)
            sums, levels = (hit @ sums - need @ rows)[None], [level]
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
        goal = self.wanted.goal
        if goal.promise == "marginal":
            return (rows + 1) * (1.0 - goal.alpha)
        # a level is just above the last rank that is too low
        return float(np.floor(pac_level(rows, goal.alpha, Nothing(), goal.confidence)) + 1.0)

    @override
    def counted(self) -> tuple[tuple[float, ...], float]:
        return self._rows, 0.0

    def reaches(self, rows: float | None) -> bool:
        """Return whether the rank exists in a part with as many rows as the others."""
        if self.wanted.average:
            rows = self.federation.clients
        each = int((rows or 0.0) / len(self._low))
        return self._level(each) <= each

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Guarantee of split conformal prediction."""
        w = self.wanted
        whose = "for a row that is exchangeable with the clients' rows."
        if w.average:
            whose = "for a row of a new client that is exchangeable with these clients."
        return (of_whom(w.goal, w.parts_by, whose, w.aim),)
