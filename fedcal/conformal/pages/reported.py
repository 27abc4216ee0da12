"""Coverage of groups of rows, as a release of noisy counts tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcal.core.types import Floats
from fedcal.evaluation.intervals.intervals import fieller, normal_quantile

LEVEL = 0.95
"""Of intervals."""


@dataclass(frozen=True, eq=False)
class Reported:
    """Noisy numbers of the clients' rows whose label is in their set, and is not, by group.

    Coverage of a group is that of its rows where it is released. Its interval is for new rows like
    them: it holds every share c where hits are within 1.96 standard deviations of c rows, by what
    choice of rows and noise give them, rows c (1 - c) + std^2 ((1 - c)^2 + c^2) (Wilson's and
    Fieller's, of normal approximations). Counts below 0 are taken for 0: that moves no share out of
    it. The threshold is taken as given before the rows, which it was made of: that is a small error
    where a group is a part of many rows.

    Attributes
    ----------
    names
        of the groups
    counts
        (groups, 2) unbiased estimates: hits, misses
    std
        of the noise of each; 0 = none
    """

    names: tuple[str, ...]
    counts: Floats
    std: float

    @property
    def rows(self) -> Floats:
        """Noisy numbers of rows, (groups,)."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def intervals(self) -> tuple[Floats, Floats, Floats]:
        """Coverage, low and high of each group, (groups,) each; NaN, 0, 1 where noise drowns it."""
        hits = np.maximum(self.counts[:, 0], 0.0)
        rows = hits + np.maximum(self.counts[:, 1], 0.0)
        noise = self.std**2
        # variance of hits - c rows: rows c (1 - c) + noise (1 - 2 c + 2 c^2)
        variance = np.stack([np.full(len(rows), noise), noise - rows / 2, 2 * noise - rows])
        low, high = fieller(hits, rows, variance, normal_quantile(LEVEL))
        seen = rows > 3.0 * np.sqrt(2.0) * self.std
        share = np.where(seen, hits / np.where(seen, rows, 1.0), np.nan)
        value = np.clip(share, low, high)
        return value, np.where(seen, low, 0.0), np.where(seen, high, 1.0)

    @property
    def lines(self) -> Mapping[str, Mapping[str, float | None]]:
        """Name -> coverage, its interval, rows: plain values, None where noise drowns them."""
        found = {}
        for name, rows, *three in zip(self.names, self.rows, *self.intervals, strict=True):
            value, low, high = map(float, three)
            coverage = None if np.isnan(value) else value
            found[name] = {"coverage": coverage, "low": low, "high": high, "rows": float(rows)}
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values, which `of_json` reads."""
        return {"names": list(self.names), "counts": self.counts.tolist(), "std": self.std}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Reported:
        """What `to_json` told."""
        counts = np.array(told["counts"], np.float64).reshape(-1, 2)
        return cls(tuple(map(str, told["names"])), counts, float(told["std"]))
