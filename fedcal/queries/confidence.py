"""Questions for correct and wrong predictions by the model's confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fedcal.calibrators.histogram_binning import Counts
from fedcal.queries.base import Cell, Order, Part, Query, Seed, within
from fedcal.units import Example
from fedcal.units.bounding import Bound

MOST_BINS = 2**16


@dataclass(frozen=True)
class BinOutcomes(Query):
    """Question for correct predictions in each bin of the confidence, then wrong or all ones.

    `bound` needs a client's clip of all counts together, in rows.

    Parameters
    ----------
    bins
        of equal width
    counts
        "correct_wrong" or "correct_total"
    """

    kind = "bin_outcomes"
    signed = False
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins": 15, "counts": "correct_wrong"},
        {"bins": 4, "counts": "correct_total"},
    )

    bins: Annotated[int, within(1, MOST_BINS)]
    counts: Counts

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all counts."""
        return (2 * self.bins,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound of all counts together; of a row a single 1, or a 1 in each half."""
        if self.takes_clips(part, clips, 1):
            return Bound(self.lengths(), (clips[0],), order=order)
        one: dict[str, Any] = {"order": order}
        if order == 1 and self.whole(part):
            one |= {"per": part, "whole": True}
        if self.counts == "correct_wrong":
            return Bound(self.lengths(), (1.0,), **one)
        return Bound((self.bins, self.bins), (1.0, 1.0), "per_block", **one)

    def whole(self, part: Part) -> bool:
        """Return whether the part is a row, which is a single 1, or a 1 in each half."""
        return part == Example.per


@dataclass(frozen=True)
class OutcomeCell(Cell):
    """Question for the cell of `BinOutcomes` ("correct_wrong") of one row of each client.

    Parameters
    ----------
    bins
        of equal width
    seed
        of the draw of the row
    """

    kind = "outcome_cell"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins": 15, "seed": 0},
        {"bins": 4, "seed": 7},
    )

    bins: Annotated[int, within(1, MOST_BINS)]
    seed: Seed

    def lengths(self) -> tuple[int, ...]:
        """Return one block with a cell of correct and a cell of wrong predictions for each bin."""
        return (2 * self.bins,)
