"""The question behind an evaluation: rows by score and outcome, of all or of groups of them."""

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
from fedcal.core.types import Floats
from fedcal.metrics.buckets import Score, check_score, equal_width, parts_of
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
from fedcal.units import Subject
from fedcal.units.bounding import SLACK

Views = Literal["model", "model,other", "model,calibrated"]
"""Whose scores are counted: the model's, beside them another model's, or the model's after a
calibrator."""

By = Literal["group", "site"]
"""What names the group of a row: its column `group`, or its client."""

MOST_GROUPS = 1000
MOST_SUBJECT_ROWS = 2**16
SubjectRows = Annotated[int, within(0, MOST_SUBJECT_ROWS)]
"""Rows that a subject's rows count as at most; 0 = any."""

ROOM = 1.0 + 2.0**-20
"""A norm above what a row adds, so that the clip's slack cuts nothing off."""


def check_names(groups: Sequence[str]) -> tuple[str, ...]:
    """Names of groups from their list, or its JSON text; or InputError."""
    names = listed("groups", groups, "names")
    if not all(isinstance(n, str) and n for n in names):
        raise InputError(f"groups must be a list of names, got {groups!r:.80}")
    if not 1 <= len(names) <= MOST_GROUPS or len(set(names)) < len(names):
        raise InputError(f"groups must be 1 to {MOST_GROUPS} different names")
    return tuple(names)


def names_text(groups: Sequence[str]) -> str:
    """The JSON text by which names of groups travel; "" = there are none."""
    return json.dumps(check_names(groups)) if len(groups) else ""


@dataclass(frozen=True, eq=False)
class ScoreCounts(Summed):
    """How many rows of each outcome have their score in which bucket?

    A client counts, a row in one bucket of each of its histograms (`views` times the parts of the
    score), and with `confusion` in one cell (predicted class, label) of each view; with two views
    also in one of four cells (both right, only the first, only the second, neither). These counts,
    as `decode` gives them, are `counts` numbers: histograms as (views, groups, parts, 2, buckets),
    then the cells of confusion (views, c, c), then the four.

    What is sent is the product of each histogram's two halves and the matrix of the encoding
    (`fedcal.queries.encodings`); other cells are multiplied by the largest norm of its columns, so
    that each 1 of a row weighs the same. `bound` takes a client's clip of all that, in answers.

    Parameters
    ----------
    classes
        of the model
    edges
        (buckets + 1,) of the buckets, from 0 to 1; one number = so many buckets of equal width
    score
        see `fedcal.metrics.buckets`
    encoding, height
        of each half of a histogram
    views
        one of `Views`
    groups
        JSON list of the names of groups that are counted apart; "" = no such
    by
        what names a row's group: "group" = the rows' column, and all other rows are counted after
        those of `groups`; "site" = its client, whose name must be among them: there are no others
    within
        JSON list of the names of groups of rows, by their column, that each site's counts are
        parted into, and a last part of all others; "" = they are not
    confusion
        count cells of predicted class and label
    calibrator
        of the view "calibrated": the file of a calibrator in base64 text
    reference
        (counts,) expected counts of one row; a client with m rows sends what differs from m times
        that (a residual query). None = counts as they are
    gain
        what answers are multiplied by before they are clipped
    pad
        zeros at the end of an answer, so that all questions of a run have one length
    subject_rows
        rows that one subject's rows at a client count as at most; see `Shards.weights`. What one
        subject adds is at most so many times what a row adds. 0 = each row counts once
    """

    kind = "score_counts"
    optional = None
    facts = ("classes",)
    cuts = ("edges",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"classes": 3, "edges": np.array([4.0])},
        {"classes": 3, "edges": np.array([0.0, 0.25, 0.7, 1.0]), "encoding": "prefix"},
        {"classes": 3, "edges": np.array([6.0]), "encoding": "tree", "height": 2, "gain": 0.5},
        {"classes": 3, "edges": np.array([3.0]), "score": "classes", "confusion": True},
        {"classes": 3, "edges": np.array([2.0]), "reference": np.array([0.25, 0.25, 0.25, 0.25])},
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
    confusion: bool = False
    calibrator: str = ""
    reference: Any = None
    gain: Positive = 1.0
    pad: Numbers = 0
    subject_rows: SubjectRows = 0

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
        if bool(self.calibrator) != (self.views == "model,calibrated"):
            raise InputError("a calibrator goes with the view 'calibrated', and only with it")
        if self.group_names == ("",) and self.by != "group":
            raise InputError("rows are counted by site for the names of sites: groups is empty")
        if self.within and self.by != "site":
            raise InputError("groups are counted within sites where rows are counted by site")
        not_too_long(self)
        if self.reference is not None:
            if self.subject_rows:
                raise InputError("a reference is of rows that count once each: subject_rows = 0")
            reference = vector("reference", self.reference)
            if len(reference) != self.counts:
                raise InputError(f"{len(reference)} numbers of reference for {self.counts} counts")
            self._set(reference=reference)
        self._set(signed=self.reference is not None)  # counts are not negative, residuals may be

    # -- what is counted ------------------------------------------------------------------

    @property
    def buckets(self) -> int:
        """Buckets of a histogram."""
        return int(self.edges[0]) if len(self.edges) == 1 else len(self.edges) - 1

    @cached_property
    def bucket_edges(self) -> Floats:
        """(buckets + 1,)."""
        return equal_width(self.buckets) if len(self.edges) == 1 else np.asarray(self.edges)

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """Groups that are counted apart; ("",) = all rows together."""
        if self.groups == "":
            return ("",)
        return check_names(self.groups)

    @cached_property
    def within_names(self) -> tuple[str, ...]:
        """Groups that each site's rows are parted into, before all others; () = they are not."""
        return check_names(self.within) if self.within else ()

    @property
    def view_names(self) -> tuple[str, ...]:
        """Whose scores."""
        return tuple(self.views.split(","))

    @property
    def counted(self) -> tuple[Any, ...]:
        """What tells its counts from those of other questions."""
        what = (self.score, self.views, self.groups, self.by, self.within, self.confusion)
        return (self.edges.tobytes(), *what, self.calibrator)

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Of all histograms: views, groups, parts, 2, buckets; groups within sites are last."""
        score: Score = self.score  # type: ignore[assignment]
        parts = parts_of(score, self.classes)
        groups = len(self.group_names) + (bool(self.groups) and self.by == "group")  # the others
        groups *= len(self.within_names) + 1
        return len(self.view_names), groups, parts, 2, self.buckets

    @property
    def cells(self) -> int:
        """Counts that are no part of a histogram."""
        views = len(self.view_names)
        return self.confusion * views * self.classes**2 + 4 * (views == 2)

    @property
    def counts(self) -> int:
        """All that are read from an answer."""
        return math.prod(self.shape) + self.cells

    @property
    def ones(self) -> int:
        """Counts that a row is in."""
        views, _, parts, _, _ = self.shape
        return views * parts + self.confusion * views + (views == 2)

    # -- as numbers of an answer ----------------------------------------------------------

    @property
    def levels(self) -> tuple[int, ...]:
        """Nodes of each level of a tree, the widest ones first."""
        return tree_levels(self.buckets, self.height)

    @property
    def matrix(self) -> Floats:
        """Of the encoding of half a histogram, (answers, buckets)."""
        return matrix_of(self.encoding, self.buckets, self.height)

    @property
    def weight(self) -> float:
        """What cells are multiplied by."""
        return column_norm(self.encoding, self.buckets, self.height, 2)

    def encode(self, counts: Floats) -> Floats:
        """Answers from counts, (clients, counts) -> (clients, numbers), without gain."""
        size = math.prod(self.shape)
        halves = counts[:, :size].reshape(len(counts), -1, self.buckets)
        coded = halves if self.encoding == "flat" else halves @ self.matrix.T
        rest = counts[:, size:] * self.weight
        zeros = np.zeros((len(counts), self.pad))
        return np.concatenate([coded.reshape(len(counts), -1), rest, zeros], axis=1)

    def decode(self, answers: Floats) -> Floats:
        """Counts from a sum of answers, (numbers,) -> (counts,), without gain; least squares."""
        size = math.prod(self.shape[:-1]) * len(self.matrix)
        halves = answers[:size].reshape(-1, len(self.matrix))
        decoder = decoder_of(self.encoding, self.buckets, self.height)
        cells = answers[size : size + self.cells] / self.weight
        return np.concatenate([(halves @ decoder.T).ravel(), cells])

    def lengths(self) -> tuple[int, ...]:
        """All in one block."""
        return (math.prod(self.shape[:-1]) * len(self.matrix) + self.cells + self.pad,)

    def row_norm(self, order: Literal[1, 2]) -> float:
        """Norm of what one row adds, without a reference and before any gain: the most there is."""
        norm = column_norm(self.encoding, self.buckets, self.height, order)
        other = self.ones - self.shape[0] * self.shape[2]
        if order == 1:
            return norm * (self.ones - other) + other * self.weight
        return math.sqrt(norm**2 * (self.ones - other) + other * self.weight**2)

    def added(self, part: Part, order: Order) -> float:
        """What a row or a subject adds to all numbers together."""
        norm = self.row_norm(order) * rows_in(part, self.subject_rows)
        if self.reference is not None:
            norm += float(np.linalg.norm(self.encode(self.reference[None])[0], order))
        norm *= self.gain
        return norm * ROOM / (1.0 - SLACK)


@dataclass(frozen=True, eq=False)
class ScoreCell(Cell):
    """One row of each client as a node of one level of a tree of buckets, for unary encoding.

    The numbers are the nodes of all levels for outcome 0, then for outcome 1, in the order of
    `fedcal.queries.encodings.Tree`; the answer is a single 1 among the nodes of `level`.

    Each client is asked once, about one level: halves of the clients that are asked about two
    levels each know more than all of them about both, with half of the budget each.

    Parameters
    ----------
    classes
        of the model
    edges
        (buckets + 1,) of the buckets, from 0 to 1; one number = so many buckets of equal width
    height
        levels of the tree
    level
        that is asked about, from 0: the widest nodes
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
        """The question for the counts of all levels."""
        return ScoreCounts(self.classes, self.edges, self.score, "tree", self.height)

    @property
    def nodes(self) -> slice:
        """Those of the level, of one outcome."""
        ends = np.cumsum((0, *self.as_counts.levels))
        return slice(int(ends[self.level]), int(ends[self.level + 1]))

    def lengths(self) -> tuple[int, ...]:
        """All nodes of both outcomes."""
        return (2 * sum(self.as_counts.levels),)


def rows_in(part: Part, subject_rows: int) -> int:
    """Return how many rows a part of a client counts as at most."""
    return max(subject_rows, 1) if part == Subject.per else 1
