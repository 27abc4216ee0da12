"""Layout of counts of rows by score and outcome: of a question, and of a release in a file.

Score and outcome of a row, and buckets of scores.

==============  ===============================  =======================  ========
name            score                            outcome                  parts
==============  ===============================  =======================  ========
``positive``    p_1 (two classes)                whether the label is 1   1
``confidence``  the largest probability          whether that class is    1
                                                 the label
``classes``     p_j, of every class j            whether the label is j   c
==============  ===============================  =======================  ========

Encodings of counts, under which sums of neighbouring counts have little noise.

A release of counts h with noise z on each of them is h + z. Instead, clients may send M h, for a
public integer matrix M (the strategy matrix of the matrix mechanism, Li et al. 2010), and the
server estimates h from M h + z by least squares. Sums of many counts then have much less noise:

========  ==============================================================  ==================
name      M                                                               intended for
========  ==============================================================  ==================
flat      the identity                                                    single counts
prefix    the square root of the matrix of prefix sums, lower triangular  Gaussian noise
          Toeplitz with c_0 = 1, c_i = c_{i-1} (2 i - 1) / (2 i)
          (Henzinger et al. 2023), times 128 and rounded
tree      sums over the nodes of a tree of `height` levels, the root      Laplace noise
          left out, the counts its leaves (Hay et al. 2010)
========  ==============================================================  ==================

Largest std of a prefix sum of 1,024 counts at equal Gaussian noise budget: flat 32, prefix 3.28,
the binary tree 4.44. At equal Laplace budget a tree of few levels is best, because one row counts
once on each of them. `tests/fedcal/metrics/test_standard.py` measures both.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Literal, get_args

import numpy as np

from fedcal.core.checks import InputError, integer, listed, needed, one_of, same, unused
from fedcal.core.fitting import label_entries
from fedcal.core.naming import plain_name
from fedcal.core.numerics import FLOOR, Floats, Integers, row_max
from fedcal.core.options import CheckedFields, Classes, Vector, increasing, within

Score = Literal["positive", "confidence", "classes"]


DIGITS = 12
"""Decimals of a probability that are looked at: the last bits of a double decide nothing."""


_ALONE = 0.51  # no other probability is as large


BELOW_HALF = 0.5 - 2.0**-25
"""Largest single-precision number below 1/2."""


def check_score(score: str, classes: int) -> Score:
    """Return the score if a model with so many classes has it; "" = its default."""
    if score == "":
        return "positive" if classes == 2 else "confidence"
    if score == "positive" and classes != 2:
        return one_of(f"score of a model of {classes} classes", score, ("confidence", "classes"))
    return one_of("score", score, get_args(Score))


def scored(probs: Floats, labels: Integers, score: Score) -> tuple[Floats, Integers]:
    """Return the scores and outcomes of rows.

    Class 1 of two is predicted above 1/2 only, as by argmax everywhere else: a `positive` score of
    1/2 becomes `BELOW_HALF`.

    Parameters
    ----------
    probs
        (n, c)
    labels
        (n,)

    Returns
    -------
    tuple[Floats, Integers]
        (n, parts) in [0, 1], (n, parts) 0 or 1
    """
    if score == "confidence":
        top = row_max(probs)
        hit = label_entries(probs, labels) == top
        tied = np.flatnonzero(hit & (top < _ALONE))
        hit[tied] = probs[tied].argmax(axis=1) == labels[tied]
        return np.round(top, DIGITS)[:, None], hit[:, None].astype(np.int64)
    scores = np.round(probs, DIGITS)
    if score == "positive":
        p = scores[:, 1:]
        return np.where(p <= 0.5, np.minimum(p, BELOW_HALF), p), labels[:, None]
    return scores, (labels[:, None] == np.arange(probs.shape[1])).astype(np.int64)


def has_nodes(edges: Floats) -> bool:
    """Return whether the two outermost buckets of each end are nodes: its end lies at 1e-12.

    Scores of a tail, below the second edge or above the last but one, do not lie where their bucket
    says: each row is in the two nodes by its logarithm, see `far_share`.
    """
    return len(edges) > 5 and bool(edges[1] == FLOOR)


def far_share(probs: Floats, score: Score, edges: Floats) -> Floats:
    """Return how far on the way from the inner to the outer node a score's logarithm is.

    So the mean of the logarithm, up to the floor of 1e-12, follows from the counts of both nodes.

    Parameters
    ----------
    probs
        (n, c)
    score
        "positive" or "confidence"
    edges
        of buckets with nodes

    Returns
    -------
    Floats
        (n,) in [-1, 1]: below 0 at the lower end, above 0 at the upper one, 0 between tails; in
        steps of 2**-20, which are exact in sums
    """
    probs = probs if score == "positive" else np.sort(probs, axis=1)
    value, rest = probs[:, -1], probs[:, :-1].sum(axis=1)  # 1 - value would have few digits
    low = value < rest
    near = np.log(np.where(low, edges[2], 1 - edges[-3]))
    share = (near - np.log(np.maximum(np.minimum(value, rest), FLOOR))) / (near - np.log(FLOOR))
    steps = np.rint(np.clip(share, 0.0, 1.0) * 2**20)
    return np.asarray(np.where(low, -steps, steps) / 2**20)


def bucket_of(scores: Floats, edges: Floats) -> Integers:
    """Return each score's bucket; a score on an edge is in the bucket above, 1 in the last.

    Scores and edges are compared in single precision, as in `fedcal.metrics.binning`.
    """
    place = np.searchsorted(edges.astype(np.float32), scores.astype(np.float32), side="right")
    return np.clip(place - 1, 0, len(edges) - 2)


def equal_width(buckets: int) -> Floats:
    """Return the edges of buckets of equal width, (buckets + 1,)."""
    return np.arange(buckets + 1) / buckets


def arcsine_edges(buckets: int) -> Floats:
    """Return edges equally spaced in arcsin sqrt(score), (buckets + 1,).

    An even number has edge 1/2. They suit scores that crowd at both ends, and those in the middle.
    """
    edges = np.sin(np.arange(buckets + 1) * (np.pi / (2 * buckets))) ** 2
    edges[-1] = 1.0
    if buckets % 2 == 0:
        edges[buckets // 2] = 0.5
    return np.asarray(edges)


def fine_tails(buckets: int, *, nodes: bool) -> Floats:
    """Return edges of equal width, with the first and last bucket halved repeatedly to its end.

    Scores of good models crowd there: the ranking, and what is read from log-odds, would be lost.
    With `nodes` the two outermost buckets of each end are nodes; see `has_nodes`.

    Returns (buckets + 2 * HALVINGS + 1,).
    """
    tail = 0.5 ** np.arange(HALVINGS, 0, -1) / buckets
    if nodes:
        tail[0] = FLOOR
    return np.concatenate([[0.0], tail, equal_width(buckets)[1:-1], 1.0 - tail[::-1], [1.0]])


HALVINGS = 8
"""Number of halvings of an outer bucket: 240 buckets of equal width make 256."""


SCALE = 128
"""Factor of the square root, before its entries are rounded to integers."""


Height = Annotated[int, lambda name, value: integer(name, value, 1, 12)]
"""Levels of a tree of counts, as the type of a parameter."""


MOST_BUCKETS = 4096
"""Counts that are encoded together: matrices have as many rows."""


FLAT, PREFIX, TREE = "flat", "prefix", "tree"


def _prefix(buckets: int, height: int) -> Floats:
    """Return 128 times the Toeplitz matrix of the square root of prefix sums, rounded."""
    i = np.arange(1, buckets)
    first = np.cumprod(np.concatenate([[1.0], (2 * i - 1) / (2 * i)]))
    lag = np.subtract.outer(np.arange(buckets), np.arange(buckets))
    return np.where(lag >= 0, np.rint(SCALE * first)[np.abs(lag)], 0.0)


def _tree(buckets: int, height: int) -> Floats:
    """Return a row of ones over its leaves for each node, the widest nodes first.

    Each level has the same number of children, as few as reach all buckets.
    """
    levels = tree_levels(buckets, height)
    return np.concatenate(
        [np.arange(n)[:, None] == node_of(buckets, height, k) for k, n in enumerate(levels)]
    ).astype(np.float64)


ENCODINGS: dict[str, Callable[[int, int], Floats]] = {
    FLAT: lambda buckets, _: np.eye(buckets),
    PREFIX: _prefix,
    TREE: _tree,
}
"""Name -> the strategy matrix M of so many buckets and levels, (answers, buckets), of integers."""


def branching(buckets: int, height: int) -> int:
    """Return the children of a node: the least number with `children ** height >= buckets`."""
    fan = 1
    while fan**height < buckets:
        fan += 1
    return fan


def tree_levels(buckets: int, height: int) -> tuple[int, ...]:
    """Return the nodes of each level of a tree, the widest ones first, without redundant levels.

    With 5 buckets and height 3 there are levels of 2, 3 and 5 nodes.
    """
    fan = branching(buckets, height)
    widths = (-(-buckets // fan**level) for level in range(height - 1, -1, -1))
    return tuple(sorted(set(widths)))


def node_of(buckets: int, height: int, level: int) -> Integers:
    """Return the node of a level that is above each bucket, (buckets,)."""
    nodes, fan = tree_levels(buckets, height)[level], branching(buckets, height)
    widths = [fan**k for k in range(height)]
    width = next(w for w in widths if -(-buckets // w) == nodes)
    return np.asarray(np.arange(buckets) // width)


def check_encoding(name: str, buckets: int, height: int) -> None:
    """Raise InputError if an encoding does not exist, or its matrix would be too large."""
    one_of("encoding", name, ENCODINGS)
    integer("buckets", buckets, 1, MOST_BUCKETS)
    integer("height", height, 1, 12)
    if name != TREE:
        unused(f"encoding '{name}' has no levels", height=None if height == 1 else height)


@cache
def matrix_of(name: str, buckets: int, height: int = 1, nodes: bool = False) -> Floats:
    """Return M, (answers, buckets), read-only.

    With `nodes` the first and last bucket stand beside a tree, as large as its L1 norm: counts that
    are read alone have less noise so. (Beside a prefix matrix all others would lose more.)
    """
    apart = nodes and name == TREE
    matrix = ENCODINGS[name](buckets - 2 * apart, height)
    if apart:
        matrix = np.pad(matrix, 1)
        matrix[[0, -1], [0, -1]] = matrix.sum(axis=0).max()
    matrix.setflags(write=False)
    return matrix


@cache
def decoder_of(name: str, buckets: int, height: int = 1, nodes: bool = False) -> Floats:
    """Return the matrix that decodes noisy answers, (buckets, answers), with least variance.

    It is the pseudo-inverse of M: least squares where all answers have the same noise.
    """
    m = matrix_of(name, buckets, height, nodes)
    decoder = np.linalg.inv(m) if len(m) == buckets else np.linalg.solve(m.T @ m, m.T)
    decoder.setflags(write=False)
    return np.asarray(decoder)


@cache
def column_norm(name: str, buckets: int, height: int, order: Literal[1, 2]) -> float:
    """Return the largest L1 or L2 norm of the contribution of a row, which is in one bucket."""
    return float(np.linalg.norm(matrix_of(name, buckets, height), order, axis=0).max())


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
    plain = tuple(plain_name("groups", name) for name in names) if texts else ()
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
    (see this module); other cells are multiplied by the largest norm of its columns, so that each 1
    of a row has the same weight.

    Parameters
    ----------
    classes
        of the model
    edges
        (buckets + 1,) of the buckets, from 0 to 1; one number = the number of buckets of equal
        width
    score
        see this module
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
        """Condition that each tail of the score is two nodes."""
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
