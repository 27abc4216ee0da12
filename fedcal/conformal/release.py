"""Counts of rows by conformity score, as a release tells them: thresholds for every alpha."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from fedcal.checks import one_of
from fedcal.conformal.levels import (
    Law,
    Nothing,
    centred_level,
    centred_pac_level,
    marginal_level,
    pac_level,
)
from fedcal.conformal.noise import Noise
from fedcal.errors import InputError
from fedcal.streams import Purpose, key_of, stream
from fedcal.types import Floats

Promise = Literal["marginal", "pac"]

FAILS = 0.001
"""Part of alpha (marginal), or of what is missing to certainty (PAC), by which the bounds of the
number of rows may fail."""


@dataclass(frozen=True)
class Goal:
    """How often the label of a new row is to be in its set.

    Attributes
    ----------
    alpha
        it may be missing in this share of rows
    promise
        "marginal": in the mean over releases, clients' rows and the new row; "pac": for these
        clients' rows and this release, with probability `confidence`
    confidence
        of "pac"
    """

    alpha: float
    promise: Promise = "marginal"
    confidence: float = 0.9

    def __post_init__(self) -> None:
        for name in ("alpha", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} must be in (0, 1), got {getattr(self, name):g}")
        one_of("guarantee", self.promise, ("marginal", "pac"))


@dataclass(frozen=True, eq=False)
class SetRelease:
    """Noisy counts of rows in buckets of their conformity score.

    Attributes
    ----------
    thresholds
        (m,) upper ends of the buckets, the last one 1
    counts
        (parts, m) unbiased estimates
    decoder
        (m, numbers): the noise of each part's counts is `decoder @ z`, of independent z
    noise
        the law of z
    rows
        of the one part, where their number is public; None = it is private
    """

    thresholds: Floats
    counts: Floats
    decoder: Floats
    noise: Noise
    rows: int | None = None

    @cached_property
    def below(self) -> Floats:
        """Noisy numbers of rows with a score of at most each threshold, (parts, m)."""
        return np.cumsum(self.counts, axis=1)

    @cached_property
    def _prefix(self) -> Floats:
        """The noise of these, in z, (m, numbers)."""
        return np.cumsum(self.decoder, axis=0)

    def found(self, goal: Goal) -> Floats:
        """A threshold of each part that covers as often as the goal says, (parts,); 1 = all labels.

        The threshold after the last one whose noisy count is below the level: scanning from the
        top, for of a thousand noisy counts the first one above a level is often far too low.
        """
        if self.rows is not None and len(self.counts) > 1:
            raise InputError("the public number of rows is that of all parts together")
        goal = self._stricter(goal)
        share = 1.0 - goal.alpha
        weights, counts = self._prefix[:-1], self.below[:, :-1]
        if self.rows is None:
            weights = weights - share * self._prefix[-1]
            counts = counts - share * self.below[:, -1:]
        if not len(weights):
            return np.ones(len(self.counts))
        law, more = self.noise.of_sums(weights)
        if more.any():
            draw = stream(0, Purpose.BOOTSTRAP, 2, key_of(self.counts, goal.alpha))
            counts = counts + more * draw.standard_normal(counts.shape)
        found = []
        for part, sums in enumerate(counts):
            short = np.flatnonzero(sums < self._level(part, goal, law))
            found.append(self.thresholds[short[-1] + 1 if len(short) else 0])
        return np.array(found)

    def _level(self, part: int, goal: Goal, law: Law) -> float:
        alpha, sure = goal.alpha, goal.confidence
        if self.rows is not None:
            if goal.promise == "marginal":
                return marginal_level(self.rows, alpha, law)
            return pac_level(self.rows, alpha, law, sure)
        fails = FAILS * (alpha if goal.promise == "marginal" else 1.0 - sure)
        exact = isinstance(law, Nothing)
        off = 0.0 if exact else self.noise.bound(self._prefix[-1], 1.0 - fails / 2)
        seen = float(self.below[part, -1])
        if goal.promise == "marginal":
            return centred_level(seen - off, alpha, law)
        return centred_pac_level(seen - off, seen + off, alpha, law, sure)

    def _stricter(self, goal: Goal) -> Goal:
        """The goal that makes up for bounds of a private number of rows that may fail."""
        if self.rows is not None or not self.noise.std:
            return goal
        if goal.promise == "marginal":
            return replace(goal, alpha=(1.0 - FAILS) * goal.alpha)
        return replace(goal, confidence=1.0 - (1.0 - FAILS) * (1.0 - goal.confidence))

    @property
    def total(self) -> Floats:
        """Noisy numbers of rows of each part, (parts,)."""
        return np.asarray(self.below[:, -1])

    @property
    def prefix_std(self) -> float:
        """The largest of the noise of `below`, in rows."""
        return float(np.linalg.norm(self._prefix, axis=1).max() * self.noise.std)

    @property
    def total_std(self) -> float:
        """Of their noise."""
        return float(np.linalg.norm(self._prefix[-1]) * self.noise.std)
