"""Change of each site's calibration in the large between two models of the same rows.

A site's gap is its mean score less its mean outcome. A calibrator that mends the gap of all rows
together may widen it at a site: `|after| > |before|` is `(after - before) (before + after) > 0`, so
it is tested by the sign of the move, after - before, and that of the middle, (before + after) / 2.
Both are means over rows, hence asymptotically normal where `|after| - |before|` is not.

Multiple tests: p-values corrected for their number (Holm 1979).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np

from fedcal.core.numerics import Floats, Integers

Name = TypeVar("Name")

ERROR = 0.05
"""Probability that any true hypothesis is rejected (familywise error)."""


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Return p-values corrected for their number, with familywise error at most alpha.

    The k-th smallest of m (k from 0) times m - k, none below one before it.
    """
    corrected, least = dict(p_values), 0.0
    for k, name in enumerate(sorted(corrected, key=corrected.__getitem__)):
        least = corrected[name] = min(max(least, (len(corrected) - k) * corrected[name]), 1.0)
    return corrected


def rejected(p_values: Mapping[Name, float]) -> tuple[Name, ...]:
    """Return the names of the hypotheses rejected at `ERROR`, the smallest p-value first."""
    sure = holm(p_values)
    return tuple(name for name in sorted(p_values, key=p_values.__getitem__) if sure[name] <= ERROR)


LEAST = 0.005
"""Change of a gap's size below which no action is needed: it has no verdict."""

FEWEST = 20
"""Rows of a site below which no verdict is made."""

MOST_CLIENTS = 1000
"""Maximum number of clients with their own numbers: the first ones with rows."""


@dataclass(frozen=True)
class GapChange:
    """Gap of one site before and after, and the evidence that its size grew or shrank.

    Attributes
    ----------
    before, after
        mean score less mean outcome
    p_worse, p_better
        p-values of the hypotheses that its size has not grown, and not shrunk; 1 = no verdict
    """

    before: float
    after: float
    p_worse: float
    p_better: float


def gap_change(
    before: float,
    after: float,
    middle_std: float,
    move_std: float = 0.0,
    slack: float = 0.0,
    move_slack: float = 0.0,
) -> GapChange:
    """Test whether the gap's size grew or shrank; both errors are normal.

    Parameters
    ----------
    before, after
        the gaps
    middle_std, move_std
        standard deviations of (before + after) / 2 and of after - before
    slack, move_slack
        bounds of what buckets hide of them
    """

    def p_value(sign: float) -> float:
        """Return the p-value against `sign` * move * middle > 0: both of one sign, or the other."""
        ways = []
        for way in (1.0, -1.0):
            by_move = _above(way * (after - before) - move_slack, move_std)
            by_middle = _above(sign * way * (before + after) / 2 - slack, middle_std)
            ways.append(max(by_move, by_middle))
        return min(ways)

    grown = abs(after) - abs(before)
    worse = p_value(1.0) if grown >= LEAST else 1.0
    better = p_value(-1.0) if grown <= -LEAST else 1.0
    return GapChange(before, after, worse, better)


def _above(value: float, std: float) -> float:
    """Return the one-sided p-value of the hypothesis that a normal estimate's mean is at most 0."""
    if not math.isfinite(value) or not math.isfinite(std):
        return 1.0
    if std <= 0:
        return 0.0 if value > 0 else 1.0
    return NormalDist().cdf(-value / std)


def changes_by_client(
    owner: Integers,
    names: tuple[str, ...],
    before: tuple[Floats, Floats],
    after: tuple[Floats, Floats],
) -> dict[str, GapChange]:
    """Return the change of each client that has at least `FEWEST` rows, from the rows themselves.

    The variance of the middle is the larger of the observed one and that of calibrated scores,
    which few rows of one outcome do not make 0.

    Parameters
    ----------
    owner
        (n,) client of each row, in [0, K)
    names
        names of the K clients
    before, after
        (n,) scores in [0, 1], and (n,) outcomes 0 or 1
    """
    rows = np.bincount(owner, minlength=len(names))
    there = np.flatnonzero(rows >= FEWEST)[:MOST_CLIENTS]

    def mean(x: Floats) -> Floats:
        return np.bincount(owner, x, len(names))[there] / rows[there]

    def variance(x: Floats) -> Floats:
        return np.asarray(np.maximum(mean(x**2) - mean(x) ** 2, 0.0) / (rows[there] - 1))

    gaps = [score - outcome for score, outcome in (before, after)]
    score = (before[0] + after[0]) / 2
    middle = np.sqrt(
        np.maximum(variance((gaps[0] + gaps[1]) / 2), mean(score * (1 - score)) / rows[there])
    )
    move = np.sqrt(variance(gaps[1] - gaps[0]))
    each = zip(there, mean(gaps[0]), mean(gaps[1]), middle, move, strict=True)
    return {names[k]: gap_change(*map(float, own)) for k, *own in each}


def changes_record(changes: Mapping[str, GapChange], score: str) -> dict[str, Any]:
    """Return plain numbers, and the names of the sites that surely got worse, and better.

    Parameters
    ----------
    changes
        change of each site
    score
        score of the gap: "positive" or "confidence", see `fedcal.metrics.binning`
    """
    return {
        "score": score,
        "worse": list(rejected({name: c.p_worse for name, c in changes.items()})),
        "better": list(rejected({name: c.p_better for name, c in changes.items()})),
        "sites": {name: vars(c) for name, c in changes.items()},
    }
