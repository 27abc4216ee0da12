"""Number of rows that thresholds are based on, and what it explains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

NOISE_ENDS = 1.96


@dataclass(frozen=True)
class Basis:
    """Number of rows that thresholds are based on, as far as a run may know it.

    Attributes
    ----------
    rows
        of each threshold: exact without privacy; else released with noise, or the public nominal
        number
    std
        of the noise of each
    exact
        whether `rows` are exact
    fewest
        rows that a threshold needs for any scores; None = unknown
    noun
        counted unit: "rows", or "subjects" or "clients" where each counts once
    """

    rows: tuple[float, ...]
    std: float = 0.0
    exact: bool = False
    fewest: int | None = None
    noun: str = "rows"

    def ends(self, part: int) -> tuple[float, float]:
        """Return the 95 % interval of a threshold's number of rows."""
        off = NOISE_ENDS * self.std
        return max(0.0, self.rows[part] - off), max(0.0, self.rows[part] + off)

    def why_all(self, part: int) -> str:
        """Return why a threshold admits all labels, as a clause."""
        low, high = self.ends(part)
        number = f"{low:,.0f} to {high:,.0f} by a noisy count"
        if not self.std:
            number = f"{high:,.0f}" if self.exact else f"about {high:,.0f}"
        if self.fewest is not None and high < self.fewest:
            needed = f"which needs {self.fewest:,}"
            return f"its {self.noun}, {number}, are too few for a threshold, {needed}"
        if self.exact:
            return f"too many of its {number} {self.noun} have the largest possible score"
        noise = "too few relative to the noise, or have scores too close to 1"
        return f"its {self.noun}, {number}, are {noise}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `of_json`."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Basis:
        """Return the basis of `to_json` values."""
        return cls(**{**values, "rows": tuple(map(float, values["rows"]))})


def fewer_than_chance(hits: float, rows: float, alpha: float, made_of: float | None) -> float:
    """Return the probability of at most `hits`, if sets have the coverage 1 - alpha.

    If the threshold is an order statistic of n rows, the hits of m rows like them have a
    beta-binomial distribution: the coverage of such a threshold itself varies, by about
    sqrt(alpha (1 - alpha) / n). A noisy threshold varies more, around a mean that is higher.

    Parameters
    ----------
    hits, rows
        labels that are in their set; rows, rounded down where several count as one
    alpha
        fraction that may be missing
    made_of
        n; None = the threshold is taken to cover exactly 1 - alpha, and only test rows vary
    """
    from scipy.stats import betabinom, binom

    seen = min(round(hits), math.floor(rows))
    if made_of is None:
        return float(binom.cdf(seen, math.floor(rows), 1.0 - alpha))
    n = max(1, round(made_of))
    rank = math.ceil((n + 1) * (1.0 - alpha))
    return float(betabinom.cdf(seen, math.floor(rows), rank, n + 1 - rank)) if rank <= n else 1.0
