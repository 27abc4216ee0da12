"""Number of rows that thresholds are based on, and warnings of too little coverage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedcal.conformal.judged import ALL, Covered, Judged
from fedcal.conformal.page import FEW_CLASSES, percent, shown
from fedcal.core.classes import called

NOISE_ENDS = 1.96

LEVEL = 0.025
"""Probability with which chance alone gives a warning of all rows, or of the parts."""

SHORT = "Sets cover"
"""Beginning of the sentence about all rows."""

_MOST = 5
"""Parts that a sentence names, the lowest coverage first."""


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


def shortfalls(
    result: Judged,
    alpha: float,
    promised: Mapping[str, Sequence[str]],
    basis: Basis | None,
    names: Sequence[str] | None = None,
    weighted: bool = False,
    fit_rows: int | None = None,
) -> list[str]:
    """Return a warning for each shortfall of coverage on test rows.

    Both the rows behind the threshold and the test rows vary by chance (see `fewer_than_chance`).
    Test rows are treated as independent, except that alike rows of many clients count as fewer
    (`Judged.alike`). Of several parts each is tested at a level divided by their number.

    Parameters
    ----------
    result
        coverage of test rows
    alpha
        fraction of rows whose label may be missing
    promised
        "class", "site", "group" -> names of the parts with their own threshold, in the order of the
        thresholds
    basis
        number of rows behind the thresholds; None = unknown
    names
        of the classes
    weighted
        True if the guarantee is for other label shares than the rows'
    fit_rows
        number of rows of the run, where there is no basis; None = unknown
    """
    if weighted:
        return []
    short, wanted = [], percent(1.0 - alpha)
    if not promised:
        whole = result.by["whole"][ALL]
        made_of = basis.ends(-1)[0] if basis else fit_rows  # of all, or of no group
        if _falls_short(whole, alpha, made_of, LEVEL, result.alike):
            short.append(
                f"{SHORT} {shown(whole)} of the test rows, less than the requested {wanted}, "
                "by more than chance: the guarantee is for rows like the clients', and these test "
                "rows are harder, or differ in another way."
            )
    for kind in dict.fromkeys(("class", *promised)):
        parts, own = result.by.get(kind, {}), promised.get(kind, ())
        if not own and result.classes > FEW_CLASSES:
            continue
        least = {name: basis.ends(k)[0] for k, name in enumerate(own)} if basis else {}
        level = LEVEL / max(1, len(parts))
        worst = sorted(
            (
                name
                for name, part in parts.items()
                if _falls_short(part, alpha, least.get(name), level, result.alike)
            ),
            key=lambda name: parts[name].coverage,
        )
        if worst:
            listed = [
                f"{called(names, int(name)) if kind == 'class' else name} {shown(parts[name])}"
                for name in worst[:_MOST]
            ]
            more = f" and {len(worst) - _MOST} more" if len(worst) > _MOST else ""
            short.append(f"Covered less than {wanted} of the time: {', '.join(listed)}{more}. ")
            short[-1] += _OWN if own else _POOLED
            if not own and not promised:
                short[-1] += _ADVICE
    return short


_OWN = "That is less than the guarantee for each by itself, by more than chance."
_POOLED = "The guarantee is for the rows of all classes together."
_ADVICE = " --set by=class covers each class by itself; it needs enough rows of each."


def _falls_short(
    part: Covered, alpha: float, made_of: float | None, level: float, alike: float
) -> bool:
    rows = part.rows / alike
    return fewer_than_chance(part.coverage * rows, rows, alpha, made_of) < level
