"""How many rows thresholds were made of, and what that explains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

NOISE_ENDS = 1.96


@dataclass(frozen=True)
class Basis:
    """Rows that thresholds were made of, as far as a run may know them.

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
        rows that a threshold needs, whatever their scores; None = nobody knows
    noun
        what is counted: "rows", or "subjects" or "clients", where each of them counts once
    """

    rows: tuple[float, ...]
    std: float = 0.0
    exact: bool = False
    fewest: int | None = None
    noun: str = "rows"

    def ends(self, part: int) -> tuple[float, float]:
        """95 % interval of a threshold's rows."""
        off = NOISE_ENDS * self.std
        return max(0.0, self.rows[part] - off), max(0.0, self.rows[part] + off)

    def why_all(self, part: int) -> str:
        """Return why a threshold lets all labels in, as a clause."""
        low, high = self.ends(part)
        told = f"{low:,.0f} to {high:,.0f} by a noisy count"
        if not self.std:
            told = f"{high:,.0f}" if self.exact else f"about {high:,.0f}"
        if self.fewest is not None and high < self.fewest:
            return (
                f"its {self.noun}, {told}, are too few for a threshold, which takes {self.fewest:,}"
            )
        if self.exact:
            return f"too many of its {told} {self.noun} have the largest score there is"
        return f"its {self.noun}, {told}, are too few beside the noise, or have scores too near 1"

    def to_json(self) -> dict[str, Any]:
        """Plain values, which `of_json` reads."""
        return asdict(self)

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Basis:
        """What `to_json` told."""
        return cls(**{**told, "rows": tuple(map(float, told["rows"]))})


def fewer_than_chance(hits: float, rows: float, alpha: float, made_of: float | None) -> float:
    """Return the probability of at most so many hits, if sets cover as they should.

    Of a threshold that is the order statistic of n rows, hits of m rows like them have a
    beta-binomial law: the coverage of such a threshold varies, too, by about
    sqrt(alpha (1 - alpha) / n). A noisy threshold varies more, around a mean that is higher.

    Parameters
    ----------
    hits, rows
        labels that are in their set; rows, rounded down where several count as one
    alpha
        share that may be missing
    made_of
        n; None = a share of 1 - alpha is expected of this threshold, and only test rows vary
    """
    from scipy.stats import betabinom, binom

    seen = min(round(hits), math.floor(rows))
    if made_of is None:
        return float(binom.cdf(seen, math.floor(rows), 1.0 - alpha))
    n = max(1, round(made_of))
    rank = math.ceil((n + 1) * (1.0 - alpha))
    return float(betabinom.cdf(seen, math.floor(rows), rank, n + 1 - rank)) if rank <= n else 1.0
