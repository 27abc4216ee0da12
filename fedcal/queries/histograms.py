"""Questions for counts: histograms of predicted probabilities, by class or pooled; class counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fedcal.calibrators.histogram_binning import tables
from fedcal.core.types import override
from fedcal.queries.base import Classes, Order, Part, Query, Summed, not_too_long, within
from fedcal.units import Example
from fedcal.units.bounding import Bound

MOST_BINS = 2**16

OUTSIDE = 2.0
"""Number of a row's pooled negatives that may lie outside the first bin unclipped."""


@dataclass(frozen=True)
class HistogramQuery(Query):
    """Base class of questions for histograms P and N, which are bounded jointly.

    `bound` needs a client's clips of P and of N.

    Parameters
    ----------
    bins
        of equal width, of each predicted probability
    classes
        of the model
    """

    facts = ("classes",)
    signed = False

    bins: Annotated[int, within(2, MOST_BINS)]
    classes: Classes

    def __post_init__(self) -> None:
        super().__post_init__()
        not_too_long(self)

    @abstractmethod
    def norms(self, positive: float, negative: float) -> tuple[float, ...]:
        """Return the norm of each block, where P has norm `positive` and N has norm `negative`."""

    @abstractmethod
    def ones(self, order: Order) -> float:
        """Return a row's counts in the norm of this order, to its power, for 3 classes or more."""

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound of all blocks, each in units of its norm, to norm 1 together.

        For a row, the norms follow from what a row adds, so that hardly any is clipped: a single 1
        for two classes, else `ones`.
        """
        if self.takes_clips(part, clips, 2):
            norms = self.norms(clips[0], clips[1])
        else:
            one = 1.0 if self.classes == 2 else float(self.ones(order) ** (1.0 / order))
            norms = self.norms(one, one)
            if order == 1 and self.whole(part):
                return Bound(self.lengths(), norms, order=order, per=part, whole=True)
        return Bound(self.lengths(), norms, order=order)

    def whole(self, part: Part) -> bool:
        """Return whether a row adds ones within equal norms, which are their number."""
        return part == Example.per and len(set(self.norms(1.0, 1.0))) == 1


@dataclass(frozen=True)
class ClassHistograms(HistogramQuery):
    """Question for P_j and N_j of each class: rows of it, and other rows, by its probability.

    For two classes only class 1 is sent.
    """

    kind = "class_histograms"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins": 16, "classes": 3},
        {"bins": 128, "classes": 3},
    )

    def lengths(self) -> tuple[int, ...]:
        """Return blocks P_1, ..., P_c, N_1, ..., N_c."""
        return (self.bins,) * (2 * tables(self.classes))

    def norms(self, positive: float, negative: float) -> tuple[float, ...]:
        """Return the norms of each P and of each N."""
        m = tables(self.classes)
        return (positive,) * m + (negative,) * m

    def ones(self, order: Order) -> float:
        """Return c: a row is a 1 in P of its class and a 1 in N of each other class."""
        return float(self.classes)


@dataclass(frozen=True)
class PooledHistograms(HistogramQuery):
    """Question for P and N over all classes; for two classes N is P mirrored, and only P is sent.

    N's first bin, which holds nearly all of the c - 1 negatives of each row, is a separate block,
    with norm 2 (c - 1) times P's. For two classes the clip of N is not used.
    """

    kind = "pooled_histograms"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins": 16, "classes": 3},
        {"bins": 128, "classes": 3},
    )

    def lengths(self) -> tuple[int, ...]:
        """Return blocks P, N's first bin, N's other bins."""
        return (self.bins,) if self.classes == 2 else (self.bins, 1, self.bins - 1)

    def norms(self, positive: float, negative: float) -> tuple[float, ...]:
        """Return the norms of P, N's first bin, N's other bins."""
        if self.classes == 2:
            return (positive,)
        return (positive, 2.0 * (self.classes - 1) * positive, negative)

    def ones(self, order: Order) -> float:
        """Return the counts: 1 in P, `OUTSIDE` in N, and half a norm in N's first bin."""
        return 1.0 + OUTSIDE + 0.5**order


@dataclass(frozen=True)
class ClassCounts(Summed):
    """Question to all clients for the rows of each class; `bound` needs a client's clip, in rows.

    Parameters
    ----------
    classes
        of the model
    """

    kind = "class_counts"
    facts = ("classes",)
    signed = False
    everyone = True
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"classes": 3},)

    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """Return one block with a number for each class."""
        return (self.classes,)

    @override
    def added(self, part: Part, order: Order) -> float:
        return 1.0
