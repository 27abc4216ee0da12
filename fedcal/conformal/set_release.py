"""Released counts of rows by conformity score, which give thresholds for every alpha."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.aims import Aim
from fedcal.conformal.grids import after_last
from fedcal.conformal.levels.levels import (
    Law,
    Nothing,
    centred_level,
    centred_pac_level,
    marginal_level,
    pac_level,
)
from fedcal.conformal.levels.noise_law import Noise
from fedcal.conformal.levels.weighted import exact_terms, shift, weighted_level
from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, key_of, stream
from fedcal.core.types import Floats
from fedcal.mechanisms import NoiseLaw

Promise = Literal["marginal", "pac"]

ANY_ROW = "for a row that is exchangeable with all clients' rows taken together."
"""Rows that the guarantee is for, where rows are pooled: the end of a sentence."""

FAILS = 0.001
"""Fraction of alpha (marginal), or of 1 - confidence (PAC), with which the bounds of the number of
rows may fail."""


@dataclass(frozen=True)
class Goal:
    """Required coverage of a new row's label.

    Attributes
    ----------
    alpha
        fraction of rows whose label may be missing
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
        distribution of z
    rows
        of the one part, where their number is public; None = it is private
    whose
        rows that the guarantee is for: the end of a sentence
    labels, labels_std
        (parts,) noisy numbers of rows of each part, for label weights, with noise of this standard
        deviation that is independent of the counts' noise
    """

    thresholds: Floats
    counts: Floats
    decoder: Floats
    noise: Noise
    rows: int | None = None
    whose: str = ANY_ROW
    labels: Floats | None = None
    labels_std: float = 0.0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the release as arrays, for files."""
        plain = {"std": self.noise.std} | self.noise.law.to_json()
        plain |= {"rows": self.rows, "whose": self.whose, "labels_std": self.labels_std}
        arrays: dict[str, NDArray[Any]] = {
            "release_thresholds": self.thresholds,
            "release_counts": self.counts,
            "release_decoder": self.decoder,
            "release": np.array(json.dumps(plain)),
        }
        return arrays if self.labels is None else {**arrays, "release_labels": self.labels}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Return the release of `arrays`, or None if they hold none."""
        if "release" not in arrays:
            return None
        plain = json.loads(str(arrays["release"]))
        noise = Noise(float(plain["std"]), NoiseLaw.of_json(plain))
        labels = arrays.get("release_labels")
        return cls(
            np.array(arrays["release_thresholds"], np.float64),
            np.array(arrays["release_counts"], np.float64),
            np.array(arrays["release_decoder"], np.float64),
            noise,
            None if plain["rows"] is None else int(plain["rows"]),
            str(plain["whose"]),
            None if labels is None else np.array(labels, np.float64),
            float(plain["labels_std"]),
        )

    @cached_property
    def below(self) -> Floats:
        """Noisy numbers of rows with a score of at most each threshold, (parts, m)."""
        return np.cumsum(self.counts, axis=1)

    @cached_property
    def _prefix(self) -> Floats:
        """Noise of `below`, as coefficients of z, (m, numbers)."""
        return np.cumsum(self.decoder, axis=0)

    def found(self, goal: Goal) -> Floats:
        """Return a threshold for each part that meets the goal, (parts,); 1 = all labels.

        It is the threshold after the last one whose noisy count is below the level.
        """
        if self.rows is not None and len(self.counts) > 1:
            raise InputError("the public number of rows is the total of all parts")
        goal = self._stricter(goal)
        share = 1.0 - goal.alpha
        weights, counts = self._prefix[:-1], self.below[:, :-1]
        if self.rows is None:
            weights = weights - share * self._prefix[-1]
            counts = counts - share * self.below[:, -1:]
        if not len(weights):
            return np.ones(len(self.counts))
        law, counts = self._of_one_law(weights, counts, goal.alpha)
        levels = [self._level(part, goal, law) for part in range(len(counts))]
        chosen = [
            after_last(self.thresholds, sums < level)
            for sums, level in zip(counts, levels, strict=True)
        ]
        return np.array(chosen)

    def _of_one_law(self, weights: Floats, sums: Floats, alpha: float) -> tuple[Law, Floats]:
        """Return one distribution of the sums' noise, and the sums with noise of `of_sums`."""
        law, more = self.noise.of_sums(weights)
        if more.any():
            draw = stream(0, Purpose.BOOTSTRAP, 2, key_of(self.counts, alpha))
            sums = sums + more * draw.standard_normal(sums.shape)
        return law, sums

    def aimed(self, alpha: float, aim: Aim) -> float:
        """Return one threshold for rows weighted by their label; parts are labels.

        Proof: `fedcal.conformal.levels.weighted`. Alpha is lowered to allow for the bound on the
        number of rows, which may fail, and for noisy weights.

        Parameters
        ----------
        alpha
            of the aim
        aim
            weights of rows by their label

        Returns
        -------
        float
            1 = all labels
        """
        exact = not self.noise.std
        alpha = alpha if exact else alpha * (1.0 - FAILS)
        if aim.counted:
            alpha -= self.shift(aim)
            if alpha <= 0:
                return float(self.thresholds[-1])
        rows = self._labels if aim.counted else self.total
        hit, need, most_need = exact_terms(aim, alpha, rows)
        last = self._prefix[-1]
        weights = hit[:, None, None] * self._prefix[:-1] - need[:, None, None] * last
        sums = hit @ self.below[:, :-1] - need @ self.below[:, -1:]
        if not len(self._prefix) - 1:
            return float(self.thresholds[-1])
        by_sum = np.swapaxes(weights, 0, 1).reshape(len(sums), -1)
        law, sums = self._of_one_law(by_sum, sums, alpha)
        spare = float((hit - need) @ self.below[:, -1])
        if not exact:
            of_spare = np.outer(hit - need, last).ravel()
            spare -= self.noise.bound(of_spare, 1.0 - FAILS * alpha / 2)
        return after_last(self.thresholds, sums < weighted_level(most_need, spare, law))

    @property
    def _labels(self) -> Floats:
        if self.labels is None:
            raise InputError("this release has no counts of labels, which weights need")
        return self.labels

    def shift(self, aim: Aim) -> float:
        """Return the mean loss of coverage that noisy label weights may cause."""
        noise = replace(self.noise, std=self.labels_std)
        fails = FAILS / 100.0
        fewest = self._labels - noise.bound(np.ones(1), 1.0 - fails / len(self._labels))
        return shift(np.array(aim.numbers), fewest, noise) + (fails if noise.std else 0.0)

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
        """Return a stricter goal that allows for failing bounds of a private number of rows."""
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
    def total_std(self) -> float:
        """Standard deviation of the noise of each `total`."""
        return self.noise.std * float(np.linalg.norm(self._prefix[-1]))


def thresholds_of(release: SetRelease, goal: Goal, aim: Aim | None = None) -> Floats:
    """Return a threshold for each part, or the one threshold of an aim, (parts,)."""
    if aim is None:
        return release.found(goal)
    return np.array([release.aimed(goal.alpha, aim)])
