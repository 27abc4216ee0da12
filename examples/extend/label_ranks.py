"""Where in the model's order the labels stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedcal.core.checks import whole
from fedcal.queries.base import Order, Param, Part, Query
from fedcal.units.bounding import Bound


@dataclass(frozen=True)
class LabelRanks(Query):
    """Rows whose label is the model's first, second, ... choice, and last all other rows.

    `bound` takes a client's clip of all counts together, in rows.

    Parameters
    ----------
    most : choices that are told apart
    """

    kind = "label_ranks"
    signed = False
    examples = ({"most": 1}, {"most": 2})

    most: int

    def __post_init__(self) -> None:
        self._set(most=whole("most", self.most, 1, 1000))

    def lengths(self) -> tuple[int, ...]:
        """Return one block for all counts."""
        return (self.most + 1,)

    def params(self) -> Mapping[str, Param]:
        """Return the number of choices."""
        return {"most": self.most}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound: a client's clip for all counts; a row adds a single 1."""
        norm = clips[0] if self.takes_clips(part, clips, 1) else 1.0
        return Bound(self.lengths(), (norm,), order=order)
