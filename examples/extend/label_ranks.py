"""Ranks of the labels in the model's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedcal.core.checks import whole
from fedcal.core.fields import Param
from fedcal.privacy.query import Order, Part, Query
from fedcal.units.bounding import Bound


@dataclass(frozen=True)
class LabelRanks(Query):
    """Numbers of rows whose label is the model's first, second, ... choice, and of all others.

    `bound` accepts one clip: the most a client adds to all counts together, in rows.

    Parameters
    ----------
    most : the largest rank with its own count
    """

    kind = "label_ranks"
    signed = False
    examples = ({"most": 1}, {"most": 2})

    most: int

    def __post_init__(self) -> None:
        self._set(most=whole("most", self.most, 1, 1000))

    def lengths(self) -> tuple[int, ...]:
        """Return the length of one block for all counts."""
        return (self.most + 1,)

    def params(self) -> Mapping[str, Param]:
        """Return the number of choices."""
        return {"most": self.most}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound of all counts: a client's clip, or the single 1 of a row."""
        norm = clips[0] if self.takes_clips(part, clips, 1) else 1.0
        return Bound(self.lengths(), (norm,), order=order)
