"""Layout of counts of rows by score and outcome: of a question, and of a release in a file."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np

from fedcal.core.checks import listed, needed, same, unused
from fedcal.core.errors import InputError
from fedcal.core.fields import CheckedFields, Classes, Vector, increasing, within
from fedcal.core.printable import plain_names
from fedcal.core.types import Floats
from fedcal.metrics.buckets import check_score, equal_width, has_nodes
from fedcal.metrics.encodings import check_encoding, column_norm, decoder_of, matrix_of, tree_levels

Views = Literal["model", "model,other", "model,calibrated"]

"""Scores that are counted: the model's; also those of another model; also those of the model after
a calibrator."""

By = Literal["group", "site"]

"""Source of a row's group: its column `group`, or its client."""

MOST_GROUPS = 1000

MOST_SUBJECT_ROWS = 2**16

SubjectRows = Annotated[int, within(0, MOST_SUBJECT_ROWS)]

"""Maximum weight, in rows, of a subject's rows; 0 = no maximum."""


def check_names(groups: Sequence[str]) -> tuple[str, ...]:
    """Return names of groups from a list or its JSON text; InputError if it has none."""
    names = listed("groups", groups, "names")
    texts = all(isinstance(name, str) and name for name in names)
    plain = tuple(plain_names("groups", names)) if texts else ()
    if not 1 <= len(plain) <= MOST_GROUPS or len(set(plain)) < len(plain):
        allowed = f"1 to {MOST_GROUPS} different names, and none empty"
        raise InputError(f"groups must be {allowed}, got {groups!r:.80}")
    return plain


def names_text(groups: Sequence[str]) -> str:
    """Return names of groups as JSON text; "" = there are none."""
    return json.dumps(check_names(groups)) if len(groups) else ""


@dataclass(frozen=True, eq=False)
class ScoreTable(CheckedFields):
    """Layout of counts of rows of each outcome in each bucket of the score, and their encoding.

    A row counts in one bucket of each of its histograms (`views` times the parts of the score);
    with two views also in one of four cells (both right, only the first, only the second, neither).
    These counts are `counts` numbers: histograms as (views, groups, parts, 2, buckets), then the
    four cells.

    Answers are the product of each histogram's two halves and the matrix of the encoding
    (`fedcal.metrics.encodings`); other cells are multiplied by the largest norm of its columns, so
    that each 1 of a row has the same weight.

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
    subject_rows
        maximum weight, in rows, of one subject's rows at a client; see `Shards.weights`. A subject
        adds at most this many times what a row adds. 0 = each row counts once
    """

    kind = "score_counts"
    facts = ("classes",)

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
    subject_rows: SubjectRows = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.edges) > 1:
            increasing("edges of buckets", self.edges)
        else:
            same("number of buckets", float(self.edges[0]), self.buckets)
        self._set(score=check_score(self.score, self.classes))
        check_encoding(self.encoding, self.buckets, self.height)
        if self.score == "classes" and self.tail_nodes:
            raise InputError("edges with nodes are for the score of a row, not of each class")
        if bool(self.calibrator) != (self.views == "model,calibrated"):
            raise InputError("a calibrator and the view 'calibrated' need each other")
        if self.by == "site":
            needed("groups", self.groups or None, "by 'site' counts rows by the names of sites")
        else:
            unused("its groups are counted within sites, by 'site'", within=self.within or None)
        _ = self.group_names

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
    def shape(self) -> tuple[int, int, int, int, int]:
        """Shape of all histograms: views, groups (those within sites last), parts, 2, buckets."""
        parts = self.classes if self.score == "classes" else 1
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

    # -- encoding -------------------------------------------------------------

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

    def decode(self, answers: Floats) -> Floats:
        """Return counts by least squares, (numbers,) -> (counts,), from a sum without gain."""
        size = math.prod(self.shape[:-1]) * len(self.matrix)
        halves = answers[:size].reshape(-1, len(self.matrix))
        cells = answers[size : size + self.cells] / self.weight
        return np.concatenate([(halves @ self.decoder.T).ravel(), cells])
