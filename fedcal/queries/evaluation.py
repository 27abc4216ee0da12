"""Questions of an evaluation: rows by score and outcome, for all rows or for groups."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedcal.core.checks import listed, whole
from fedcal.core.errors import InputError
from fedcal.core.printable import plain_names
from fedcal.core.types import Floats, override
from fedcal.metrics.buckets import Score, check_score, equal_width, fine_tails, has_nodes, parts_of
from fedcal.queries.base import (
    Cell,
    Classes,
    Numbers,
    Order,
    Part,
    Positive,
    Seed,
    Summed,
    Vector,
    finite,
    not_too_long,
    vector,
    within,
)
from fedcal.queries.encodings import (
    Height,
    check_encoding,
    column_norm,
    decoder_of,
    matrix_of,
    tree_levels,
)
from fedcal.units import Example, Subject
from fedcal.units.bounding import SLACK

Views = Literal["model", "model,other", "model,calibrated"]
"""Scores that are counted: the model's; also those of another model; also those of the model after
a calibrator."""

By = Literal["group", "site"]
"""Source of a row's group: its column `group`, or its client."""

MOST_GROUPS = 1000
MOST_SUBJECT_ROWS = 2**16
SubjectRows = Annotated[int, within(0, MOST_SUBJECT_ROWS)]
"""Maximum weight, in rows, of a subject's rows; 0 = no maximum."""

ROOM = 1.0 + 2.0**-20
"""Factor above the norm of what a row adds, so that the clip's slack clips nothing."""


def with_room(norm: float) -> float:
    """Return a bound whose clip cuts nothing off what has this norm."""
    return norm * ROOM / (1.0 - SLACK)


def check_names(groups: Sequence[str]) -> tuple[str, ...]:
    """Return names of groups from a list or its JSON text, or raise InputError."""
    names = listed("groups", groups, "names")
    if not all(isinstance(n, str) and n for n in names):
        raise InputError(f"groups must be a list of names, got {groups!r:.80}")
    names = plain_names("groups", names)
    if not 1 <= len(names) <= MOST_GROUPS or len(set(names)) < len(names):
        raise InputError(f"groups must be 1 to {MOST_GROUPS} different names")
    return tuple(names)


def names_text(groups: Sequence[str]) -> str:
    """Return names of groups as JSON text; "" = there are none."""
    return json.dumps(check_names(groups)) if len(groups) else ""


@dataclass(frozen=True, eq=False)
class ScoreCounts(Summed):
    """Question for the number of rows of each outcome in each bucket of the score.

    A row counts in one bucket of each of its histograms (`views` times the parts of the score);
    with two views also in one of four cells (both right, only the first, only the second, neither).
    These counts, as `decode` returns them, are `counts` numbers: histograms as (views, groups,
    parts, 2, buckets), then the four cells.

    A client sends the product of each histogram's two halves and the matrix of the encoding
    (`fedcal.queries.encodings`); other cells are multiplied by the largest norm of its columns, so
    that each 1 of a row has the same weight. `bound` needs a client's clip of all these answers.

    Parameters
    ----------
    classes
        of the model
    edges
        (buckets + 1,) of the buckets, from 0 to 1; one number = the number of buckets of equal
        width
    score
        see `fedcal.metrics.buckets`
    encoding, height
        of each half of a histogram
    views
        one of `Views`
    groups
        JSON list of the names of groups that are counted separately; "" = no groups
    by
        source of a row's group: "group" = the rows' column, and all other rows are counted after
        those of `groups`; "site" = its client, whose name must be among `groups`: there are no
        other rows
    within
        JSON list of the names of groups of rows, by their column, into which each site's counts are
        partitioned, with a last part of all others; "" = no partition
    calibrator
        file of the calibrator of the view "calibrated", in base64 text
    reference
        (counts,) expected counts of one row; a client with m rows sends its counts minus m times
        the reference (a residual query). None = counts as they are
    gain
        factor of answers before they are clipped
    pad
        zeros at the end of an answer, so that all questions of a run have one length
    subject_rows
        maximum weight, in rows, of one subject's rows at a client; see `Shards.weights`. A subject
        adds at most this many times what a row adds. 0 = each row counts once
    seed
        of the draw of the node of a row in a tail of the score (see `has_nodes`), so that each row
        is a whole 1; 0 = it counts in both nodes, by its share
    """

    kind = "score_counts"
    version = 2
    optional = None
    facts = ("classes",)
    cuts = ("edges",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"classes": 3, "edges": np.array([4.0])},
        {"classes": 3, "edges": np.array([0.0, 0.25, 0.7, 1.0]), "encoding": "prefix"},
        {"classes": 3, "edges": np.array([6.0]), "encoding": "tree", "height": 2, "gain": 0.5},
        {"classes": 3, "edges": np.array([3.0]), "score": "classes"},
        {"classes": 3, "edges": np.array([2.0]), "reference": np.array([0.25, 0.25, 0.25, 0.25])},
        {"classes": 3, "edges": fine_tails(2, nodes=True), "seed": 7},
        {"classes": 3, "edges": fine_tails(2, nodes=True)},
    )

    classes: Classes
    edges: Vector
    score: str = ""
    encoding: str = "flat"
    height: int = 1
    views: Views = "model"
    groups: str = ""
    by: By = "group"
    within: str = ""
    calibrator: str = ""
    reference: Any = None
    gain: Positive = 1.0
    pad: Numbers = 0
    subject_rows: SubjectRows = 0
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        edges = self.edges
        if len(edges) == 1:
            buckets = finite("edges", edges[0])
            if buckets != int(buckets) or buckets < 1:
                raise InputError(f"the number of buckets must be whole and >= 1, got {buckets:g}")
        elif edges[0] != 0 or edges[-1] != 1 or (np.diff(edges) <= 0).any():
            raise InputError("edges of buckets must increase from 0 to 1")
        self._set(score=check_score(self.score, self.classes))
        check_encoding(self.encoding, self.buckets, self.height)
        if self.score == "classes" and self.tail_nodes:
            raise InputError("edges with nodes are for the score of a row, not of each class")
        if bool(self.calibrator) != (self.views == "model,calibrated"):
            raise InputError("a calibrator and the view 'calibrated' need each other")
        if self.group_names == ("",) and self.by != "group":
            raise InputError("by 'site' needs the names of sites, but groups is empty")
        if self.within and self.by != "site":
            raise InputError("within needs by 'site': its groups are counted within sites")
        not_too_long(self)
        if self.reference is not None:
            if self.subject_rows:
                raise InputError("a reference needs rows that count once each: subject_rows = 0")
            reference = vector("reference", self.reference)
            if len(reference) != self.counts:
                raise InputError(f"reference has {len(reference)} numbers, not {self.counts}")
            self._set(reference=reference)
        self._set(signed=self.reference is not None)  # counts are not negative, residuals may be

    # -- counts ---------------------------------------------------------------------------

    @property
    def buckets(self) -> int:
        """Number of buckets of a histogram."""
        return int(self.edges[0]) if len(self.edges) == 1 else len(self.edges) - 1

    @cached_property
    def bucket_edges(self) -> Floats:
        """Edges of the buckets, (buckets + 1,), from 0 to 1."""
        return equal_width(self.buckets) if len(self.edges) == 1 else np.asarray(self.edges)

    @property
    def tail_nodes(self) -> bool:
        """Whether each tail of the score is two nodes."""
        return has_nodes(self.bucket_edges)

    @property
    def edges_read(self) -> Floats:
        """Edges of the buckets between which scores surely lie: of both nodes together."""
        return np.delete(self.bucket_edges, [1, -2]) if self.tail_nodes else self.bucket_edges

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """Groups that are counted separately; ("",) = all rows together."""
        if self.groups == "":
            return ("",)
        return check_names(self.groups)

    @cached_property
    def within_names(self) -> tuple[str, ...]:
        """Groups of rows that partition each site's counts, before all others; () = none."""
        return check_names(self.within) if self.within else ()

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views, in their order."""
        return tuple(self.views.split(","))

    @property
    def counted(self) -> tuple[Any, ...]:
        """Values that identify its counts among those of other questions."""
        what = (self.score, self.views, self.groups, self.by, self.within)
        return (self.edges.tobytes(), *what, self.calibrator, self.seed)

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Shape of all histograms: views, groups (those within sites last), parts, 2, buckets."""
        score: Score = self.score  # type: ignore[assignment]
        parts = parts_of(score, self.classes)
        groups = len(self.group_names) + (bool(self.groups) and self.by == "group")  # the others
        groups *= len(self.within_names) + 1
        return len(self.view_names), groups, parts, 2, self.buckets

    @property
    def cells(self) -> int:
        """Number of counts outside histograms."""
        return 4 * (len(self.view_names) == 2)

    @property
    def counts(self) -> int:
        """Number of counts decoded from an answer."""
        return math.prod(self.shape) + self.cells

    @property
    def ones(self) -> int:
        """Number of counts that a row is in."""
        views, _, parts, _, _ = self.shape
        return views * parts + (views == 2)

    # -- numbers of an answer -------------------------------------------------------------

    @property
    def levels(self) -> tuple[int, ...]:
        """Numbers of nodes in each level of a tree, the widest nodes first."""
        return tree_levels(self.buckets, self.height)

    @property
    def matrix(self) -> Floats:
        """Matrix that encodes half a histogram, (answers, buckets)."""
        return matrix_of(self.encoding, self.buckets, self.height, self.tail_nodes)

    @property
    def decoder(self) -> Floats:
        """Matrix that decodes half a histogram, (buckets, answers)."""
        return decoder_of(self.encoding, self.buckets, self.height, self.tail_nodes)

    @property
    def weight(self) -> float:
        """Factor of cells outside histograms."""
        return column_norm(self.encoding, self.buckets, self.height, 2)

    def encode(self, counts: Floats) -> Floats:
        """Return answers without gain, (clients, counts) -> (clients, numbers)."""
        size = math.prod(self.shape)
        halves = counts[:, :size].reshape(len(counts), -1, self.buckets)
        coded = halves if self.encoding == "flat" else halves @ self.matrix.T
        rest = counts[:, size:] * self.weight
        zeros = np.zeros((len(counts), self.pad))
        return np.concatenate([coded.reshape(len(counts), -1), rest, zeros], axis=1)

    def decode(self, answers: Floats) -> Floats:
        """Return counts by least squares, (numbers,) -> (counts,), from a sum without gain."""
        size = math.prod(self.shape[:-1]) * len(self.matrix)
        halves = answers[:size].reshape(-1, len(self.matrix))
        cells = answers[size : size + self.cells] / self.weight
        return np.concatenate([(halves @ self.decoder.T).ravel(), cells])

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all numbers."""
        return (math.prod(self.shape[:-1]) * len(self.matrix) + self.cells + self.pad,)

    def row_norm(self, order: Literal[1, 2]) -> float:
        """Return the largest norm of what one row adds, without a reference and before any gain."""
        norm = float(np.linalg.norm(self.matrix, order, axis=0).max())
        cells = self.ones - self.shape[0] * self.shape[2]
        if order == 1:
            return norm * (self.ones - cells) + cells * self.weight
        return math.sqrt(norm**2 * (self.ones - cells) + cells * self.weight**2)

    def whole(self, part: Part) -> bool:
        """Return whether a row counts as a 1 wherever it counts; rows of subjects have weights."""
        plain = self.reference is None and not self.subject_rows and float(self.gain).is_integer()
        drawn = bool(self.seed) or not self.tail_nodes
        cells = not self.cells or self.weight.is_integer()
        return part == Example.per and plain and drawn and cells

    def added(self, part: Part, order: Order) -> float:
        """Return the largest norm of what a row or a subject adds to all numbers together."""
        norm = self.row_norm(order) * rows_in(part, self.subject_rows)
        if self.reference is not None:
            norm += float(np.linalg.norm(self.encode(self.reference[None])[0], order))
        return norm * self.gain

    @override
    def unclipped(self, norm: float) -> float:
        return with_room(norm)


@dataclass(frozen=True, eq=False)
class ScoreCell(Cell):
    """Question for one row of each client as a node of one level of a tree, for unary encoding.

    The numbers are the nodes of all levels for outcome 0, then for outcome 1, in the order of
    `fedcal.queries.encodings`; the answer is a single 1 among the nodes of `level`.

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
        see `fedcal.metrics.buckets`; not "classes"
    seed
        of the draw of the row
    """

    kind = "score_cell"
    asked_once = True
    facts = ("classes",)
    cuts = ("edges",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"classes": 3, "edges": np.array([4.0]), "height": 1, "level": 0, "seed": 0},
        {"classes": 3, "edges": np.array([9.0]), "height": 2, "level": 0, "seed": 7},
        {"classes": 3, "edges": np.array([9.0]), "height": 2, "level": 1, "seed": 7},
    )

    classes: Classes
    edges: Any
    height: Height
    level: int
    seed: Seed
    score: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = ScoreCounts(self.classes, self.edges, self.score, "tree", self.height)
        if counts.ones > 1:
            raise InputError("unary encoding hides one cell of a row: score 'classes' has several")
        self._set(
            edges=counts.edges,
            score=counts.score,
            level=whole("level", self.level, 0, len(counts.levels) - 1),
        )

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


def rows_in(part: Part, subject_rows: int) -> int:
    """Return the maximum weight, in rows, of a part of a client."""
    return max(subject_rows, 1) if part == Subject.per else 1
