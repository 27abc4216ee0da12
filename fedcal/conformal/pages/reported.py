"""Coverage of groups of rows, estimated from released noisy counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcal.core.types import Floats
from fedcal.evaluation.intervals.intervals import fieller, normal_quantile

LEVEL = 0.95
"""Confidence level of intervals."""


@dataclass(frozen=True, eq=False)
class Reported:
    """Noisy numbers of the clients' rows with and without a hit, by group.

    A hit is a row whose label is in its set. The coverage of a group is that of its released rows.
    Its interval is for new rows like them: it contains each proportion c for which the hits are
    within 1.96 standard deviations of c rows, with variance rows c (1 - c) + std^2 ((1 - c)^2 +
    c^2) from sampling and noise (normal approximations of Wilson and Fieller). Negative counts are
    set to 0, which removes no c from the interval. The threshold is treated as independent of the
    rows it was computed from; the error is small where a group is a part of many rows.

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
        """Coverage, low and high of each group, (groups,) each; NaN, 0, 1 where noise dominates."""
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
        """Name -> coverage, interval, rows as plain values; coverage None where noise dominates."""
        lines = {}
        for name, rows, *three in zip(self.names, self.rows, *self.intervals, strict=True):
            value, low, high = map(float, three)
            coverage = None if np.isnan(value) else value
            lines[name] = {"coverage": coverage, "low": low, "high": high, "rows": float(rows)}
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `of_json`."""
        return {"names": list(self.names), "counts": self.counts.tolist(), "std": self.std}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Reported:
        """Return the report of `to_json` values."""
        counts = np.array(values["counts"], np.float64).reshape(-1, 2)
        return cls(tuple(map(str, values["names"])), counts, float(values["std"]))
