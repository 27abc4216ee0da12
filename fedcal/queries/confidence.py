"""Questions for correct and wrong predictions by the model's confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from fedcal.calibrators.top_label import Counts
from fedcal.core.checks import one_of, whole
from fedcal.core.streams import check_seed
from fedcal.queries.base import Order, Param, Part, Query
from fedcal.units.bounding import Bound

MOST_BINS = 2**16


@dataclass(frozen=True)
class BinOutcomes(Query):
    """Correct predictions of each bin of the confidence, then wrong ones or all, in rows.

    `bound` takes a client's clip of all counts together, in rows.

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

    bins: int
    counts: Counts

    def __post_init__(self) -> None:
        one_of("counts", self.counts, get_args(Counts))
        self._set(bins=whole("bins", self.bins, 1, MOST_BINS))

    def lengths(self) -> tuple[int, ...]:
        """All counts in one block."""
        return (2 * self.bins,)

    def params(self) -> Mapping[str, Param]:
        """Both."""
        return {"bins": self.bins, "counts": self.counts}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """All counts to a client's clip. A row adds a single 1, or a correct one 1 to each half."""
        if self.takes(part, clips, 1):
            return Bound(self.lengths(), (clips[0],), order=order)
        if self.counts == "correct_wrong":
            return Bound(self.lengths(), (1.0,), order=order)
        return Bound((self.bins, self.bins), (1.0, 1.0), "per_block", order)


@dataclass(frozen=True)
class OutcomeCell(Query):
    """The cell of `BinOutcomes` ("correct_wrong") of one row of each client, for unary encoding.

    A single 1, which `bound` leaves as it is. It is no sum over rows: one row may move it.

    Parameters
    ----------
    bins
        of equal width
    seed
        of the draw of the row
    """

    kind = "outcome_cell"
    row_sums = False
    signed = False
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins": 15, "seed": 0},
        {"bins": 4, "seed": 7},
    )

    bins: int
    seed: int

    def __post_init__(self) -> None:
        self._set(bins=whole("bins", self.bins, 1, MOST_BINS), seed=check_seed(self.seed))

    def lengths(self) -> tuple[int, ...]:
        """A cell of correct and one of wrong predictions for each bin."""
        return (2 * self.bins,)

    def params(self) -> Mapping[str, Param]:
        """Both."""
        return {"bins": self.bins, "seed": self.seed}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Room for the 1, which a norm of 1 would cut."""
        self.takes(part, clips, 0)
        return Bound(self.lengths(), (2.0,), order=order)
