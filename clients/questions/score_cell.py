"""Questions by unary encoding: one row of each client."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.checks import integer, same
from fedcal.core.numerics import Floats, Integers
from fedcal.core.options import Classes, Seed
from fedcal.core.row_order import drawn
from fedcal.core.shards import Shards
from fedcal.metrics import score_table
from fedcal.privacy.query import Order, Part, Query
from fedcal.units import Bound


@dataclass(frozen=True, eq=False)
class ScoreCell(Query):
    """Question for one row of each client as a node of one level of a tree, for unary encoding.

    The numbers are the nodes of all levels for outcome 0, then for outcome 1, in the order of
    `fedcal.metrics.score_table`; the answer is a single 1 among the nodes of `level`. It is not a
    sum over rows, because one row may move the 1, and `bound` does not clip it.

    Each client is asked once, about one level: if half of the clients answer for each of two
    levels, the estimates are better than if all clients answer for both with half of the budget
    each.

    Parameters
    ----------
    classes
        of the model
    edges
        (buckets + 1,) of the buckets, from 0 to 1; one number = the number of buckets of equal
        width
    height
        levels of the tree
    level
        level of the answer, from 0: the widest nodes
    score
        see `fedcal.metrics.score_table`; not "classes"
    seed
        of the draw of the row
    """

    kind = "score_cell"
    asked_once = one_hot = True
    row_sums = signed = False
    facts = ("classes",)
    cuts = ("edges",)
    examples = (
        {"classes": 3, "edges": np.array([4.0]), "height": 1, "level": 0, "seed": 0},
        {"classes": 3, "edges": np.array([9.0]), "height": 2, "level": 0, "seed": 7},
        {"classes": 3, "edges": np.array([9.0]), "height": 2, "level": 1, "seed": 7},
    )

    classes: Classes
    edges: Any
    height: score_table.Height
    level: int
    seed: Seed
    score: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = self.as_counts
        same("number of a row's cells, of which unary encoding hides one,", counts.ones, 1)
        level = integer("level", self.level, 0, len(counts.levels) - 1)
        self._set(edges=counts.edges, score=counts.score, level=level)

    @cached_property
    def as_counts(self) -> ScoreCounts:
        """Question for the counts of all levels."""
        return ScoreCounts(self.classes, self.edges, self.score, "tree", self.height)

    @property
    def nodes(self) -> slice:
        """Numbers of the level's nodes, of one outcome."""
        ends = np.cumsum((0, *self.as_counts.levels))
        return slice(int(ends[self.level]), int(ends[self.level + 1]))

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all nodes of both outcomes."""
        return (2 * sum(self.as_counts.levels),)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return a bound with capacity for the 1, which a norm of 1 would clip."""
        self.takes_clips(part, clips, 0)
        return Bound(self.lengths(), (2.0,), order=order)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Return the node of one row of each client, which the encoding hides whichever it is.

        The row is drawn uniformly by a hash of `seed` and of the rows, so that the answer does not
        depend on who else is asked, and anyone who knows only the seed does not know the row. No
        guarantee rests on that, and no amplification by this sampling is claimed.

        Returns (clients, numbers): a single 1; zeros if the client has no rows.
        """
        asked = self.as_counts
        outcome, bucket = np.divmod(asked.cells_of(shards)[:, 0], asked.buckets)
        nodes = self.nodes.start + score_table.node_of(asked.buckets, asked.height, self.level)
        cells = outcome * sum(asked.levels) + nodes[bucket]
        out, first = np.zeros((shards.clients, sum(self.lengths()))), drawn(shards, self.seed)
        out[shards.owner[first], cells[first]] = 1.0
        return out
