"""Questions for counts: histograms of predicted probabilities, by class or pooled; class counts."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fedcal import units
from fedcal.core.numerics import Floats, Integers, override
from fedcal.core.options import Classes, within
from fedcal.core.shards import Shards
from fedcal.metrics import binning
from fedcal.privacy.query import Order, Part, Query, Summed
from fedcal.units import Example

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
    cells: ClassVar[Callable[[Floats, Integers, int], Integers]]
    """Cells that each row counts in, of probabilities and labels."""

    bins: Annotated[int, within(2, MOST_BINS)]
    classes: Classes

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Count rows in P(b) and in N(b) of each client (Maddock et al., Algorithm 1).

        Returns (clients, numbers) in rows, positives first. Pooled, they are sums over classes:
        P(b) = #{p_y in b} and N(b) = #{j != y, p_j in b}; a client with m rows has m positives and
        m (c - 1) negatives, most of these in the first bin.
        """
        kind, bins, cells_of = self.kind, self.bins, type(self).cells
        cells = shards.derived((kind, bins), lambda s: cells_of(s.probs, s.labels, bins))
        return _counted(shards, cells, sum(self.lengths()))

    @abstractmethod
    def norms(self, positive: float, negative: float) -> tuple[float, ...]:
        """Return the norm of each block, where P has norm `positive` and N has norm `negative`."""

    @abstractmethod
    def ones(self, order: Order) -> float:
        """Return a row's counts in the norm of this order, to its power, for 3 classes or more."""

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> units.Bound:
        """Return the bound of all blocks, each in units of its norm, to norm 1 together.

        For a row, the norms follow from what a row adds, so that hardly any is clipped: a single 1
        for two classes, else `ones`.
        """
        if self.takes_clips(part, clips, 2):
            norms = self.norms(clips[0], clips[1])
        else:
            one = 1.0 if self.classes == 2 else float(self.ones(order) ** (1.0 / order))
            norms = self.norms(one, one)
            if order == 1 and self.counts_integers(part):
                return units.Bound(self.lengths(), norms, order=order, per=part, whole=True)
        return units.Bound(self.lengths(), norms, order=order)

    def counts_integers(self, part: Part) -> bool:
        """Return whether a row adds ones within equal norms, which are their number."""
        return part == Example.per and len(set(self.norms(1.0, 1.0))) == 1


@dataclass(frozen=True)
class ClassHistograms(HistogramQuery):
    """Question for P_j and N_j of each class: rows of it, and other rows, by its probability.

    For two classes only class 1 is sent.
    """

    kind = "class_histograms"
    cells = binning.cells_of
    examples = ({"bins": 16, "classes": 3}, {"bins": 128, "classes": 3})

    def lengths(self) -> tuple[int, ...]:
        """Return blocks P_1, ..., P_c, N_1, ..., N_c."""
        return (self.bins,) * (2 * binning.tables(self.classes))

    def norms(self, positive: float, negative: float) -> tuple[float, ...]:
        """Return the norms of each P and of each N."""
        m = binning.tables(self.classes)
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
    cells = binning.pooled_cells_of
    examples = ({"bins": 16, "classes": 3}, {"bins": 128, "classes": 3})

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
    examples = ({"classes": 3},)

    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """Return one block with a number for each class."""
        return (self.classes,)

    @override
    def added(self, part: Part, order: Order) -> float:
        return 1.0

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Rows of each class, (clients, classes)."""
        return _counted(shards, shards.labels[:, None], shards.classes)


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
    examples = ({"bins": 15, "counts": "correct_wrong"}, {"bins": 4, "counts": "correct_total"})

    bins: Annotated[int, within(1, MOST_BINS)]
    counts: binning.Counts

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all counts."""
        return (2 * self.bins,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> units.Bound:
        """Return the bound of all counts together; of a row a single 1, or a 1 in each half."""
        if self.takes_clips(part, clips, 1):
            return units.Bound(self.lengths(), (clips[0],), order=order)
        one: dict[str, Any] = {"order": order}
        if order == 1 and self.counts_integers(part):
            one |= {"per": part, "whole": True}
        if self.counts == "correct_wrong":
            return units.Bound(self.lengths(), (1.0,), **one)
        return units.Bound((self.bins, self.bins), (1.0, 1.0), "per_block", **one)

    def counts_integers(self, part: Part) -> bool:
        """Return whether the part is a row, which is a single 1, or a 1 in each half."""
        return part == Example.per

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Correct predictions of each bin of the confidence, then wrong ones or all.

        A row adds 1 to one number, or with "correct_total" to up to two.

        Returns (clients, 2 * bins) in rows.
        """
        bins = self.bins
        out = _counted(shards, _cells(shards, bins)[:, None], 2 * bins)
        if self.counts == "correct_total":
            out[:, bins:] += out[:, :bins]
        return out


def _counted(shards: Shards, cells: Integers, size: int) -> Floats:
    """Return how many of each client's rows are in each cell, (clients, size)."""
    return binning.count_cells(cells, size, shards.owner, shards.clients).astype(np.float64)


def _cells(shards: Shards, bins: int) -> Integers:
    return shards.derived(
        ("outcomes", bins), lambda s: binning.outcome_cells(s.probs, s.labels, bins)
    )
