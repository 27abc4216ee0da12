"""Released counts of rows by conformity score, which give thresholds for every alpha."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.levels import Law, Noise, NoiseFree, after_last, centred_level, marginal_level
from fedcal.core.checks import fraction
from fedcal.core.numerics import Floats, Purpose, key_of, stream
from fedcal.mechanisms import NoiseLaw

ANY_ROW = "for a row that is exchangeable with all clients' rows taken together."
"""Rows that the guarantee is for, where rows are pooled: the end of a sentence."""

FAILS = 0.001
"""Fraction of alpha with which the bounds of the number of rows may fail."""


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
    """

    thresholds: Floats
    counts: Floats
    decoder: Floats
    noise: Noise
    rows: int | None = None
    whose: str = ANY_ROW

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the release as arrays, for files."""
        plain = {"std": self.noise.std, **self.noise.law.to_json(), "rows": self.rows}
        plain["whose"] = self.whose
        return {
            "release_thresholds": self.thresholds,
            "release_counts": self.counts,
            "release_decoder": self.decoder,
            "release": np.array(json.dumps(plain)),
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Return the release of `arrays`, or None if they hold none."""
        if "release" not in arrays:
            return None
        plain = json.loads(str(arrays["release"]))
        noise = Noise(float(plain["std"]), NoiseLaw.of_json(plain))
        return cls(
            np.array(arrays["release_thresholds"], np.float64),
            np.array(arrays["release_counts"], np.float64),
            np.array(arrays["release_decoder"], np.float64),
            noise,
            None if plain["rows"] is None else int(plain["rows"]),
            str(plain["whose"]),
        )

    @cached_property
    def below(self) -> Floats:
        """Noisy numbers of rows with a score of at most each threshold, (parts, m)."""
        return np.cumsum(self.counts, axis=1)

    @cached_property
    def _prefix(self) -> Floats:
        """Noise of `below`, as coefficients of z, (m, numbers)."""
        return np.cumsum(self.decoder, axis=0)

    def found(self, alpha: float) -> Floats:
        """Return a threshold for each part with mean coverage >= 1 - alpha; 1 = all labels.

        It is the threshold after the last one whose noisy count is below the level. A private
        number of rows has a noisy bound, which may fail: alpha is lowered by as much.

        Parameters
        ----------
        alpha
            fraction of rows whose label may be missing

        Returns
        -------
        Floats
            (parts,)
        """
        fraction("alpha", alpha)
        if self.rows is None and self.noise.std:
            alpha *= 1.0 - FAILS
        if len(self.thresholds) == 1:
            return np.ones(len(self.counts))
        weights, counts = self._prefix[:-1], self.below[:, :-1]
        if self.rows is None:
            weights = weights - (1.0 - alpha) * self._prefix[-1]
            counts = counts - (1.0 - alpha) * self.below[:, -1:]
        law, more = self.noise.of_sums(weights)
        if more.any():
            draw = stream(0, Purpose.BOOTSTRAP, 2, key_of(self.counts, alpha))
            counts = counts + more * draw.standard_normal(counts.shape)
        chosen = [
            after_last(self.thresholds, sums < self._level(part, alpha, law))
            for part, sums in enumerate(counts)
        ]
        return np.array(chosen)

    def _level(self, part: int, alpha: float, law: Law) -> float:
        if self.rows is not None:
            return marginal_level(self.rows, alpha, law)
        off = 0.0
        if not isinstance(law, NoiseFree):
            off = self.noise.bound(self._prefix[-1], 1.0 - FAILS * alpha / 2)
        return centred_level(float(self.below[part, -1]) - off, alpha, law)

    @property
    def total(self) -> Floats:
        """Noisy numbers of rows of each part, (parts,)."""
        return np.asarray(self.below[:, -1])

    @property
    def total_std(self) -> float:
        """Standard deviation of the noise of each `total`."""
        return self.noise.std * float(np.linalg.norm(self._prefix[-1]))
