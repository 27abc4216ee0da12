"""Multiple tests: p-values corrected for their number (Holm 1979)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

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
