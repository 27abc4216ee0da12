"""The questions behind prediction sets: rows by the conformity score of their label.

Thresholds are public and increasing; a row is in bucket j if its score is above t_{j-1} and at most
t_j (the first: at most t_1), as in Angelopoulos et al. (2102.06202), Algorithm 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from fedcal import units
from fedcal.calibrators.conformity import BY, Conformity, quantile_costs
from fedcal.clients.questions.scores import CountedRows, counted_words, group_of, halves_of
from fedcal.core.checks import InputError, interval, one_of, same
from fedcal.core.numerics import Floats, Integers, override
from fedcal.core.options import Classes, Finite, NotNegative, Vector, increasing
from fedcal.core.row_order import drawn
from fedcal.core.shards import Shards
from fedcal.metrics import score_table
from fedcal.privacy.query import ROOM, Order, Part, with_room
from fedcal.secure_aggregation import ClientSums, Ring
from fedcal.units import Example, Subject

_APART = 0x5E75
"""Key that separates the hash that draws a row from the one that randomises its score."""


def _at(*thresholds: float, **more: Any) -> dict[str, Any]:
    """Return the arguments of an example, of three classes."""
    return {"classes": 3, "thresholds": np.array(thresholds), **more}


@dataclass(frozen=True, eq=False)
class SetQuery(CountedRows):
    """Base class of questions about conformity scores: the score, thresholds and parts of rows.

    Parameters
    ----------
    classes
        of the model
    thresholds
        increasing, in [0, 1]
    score, randomised, penalty, free, calibrator
        see `fedcal.conformal.Conformity`
    once
        count only one of a client's rows, drawn by a hash of the rows' logits; one of each
        subject's rows where subjects are clipped by themselves
    by, groups
        "none": all rows together; "class": a part for each label; "group": a part for each name in
        the JSON list `groups`, by the rows' column, and a last part for all other rows
    """

    facts = ("classes",)
    cuts = ("thresholds",)
    optional = None
    ends: ClassVar[str] = "within [0, 1]"

    classes: Classes
    thresholds: Vector
    score: str = "lac"
    randomised: bool = False
    penalty: Finite | None = None
    free: int | None = None
    calibrator: str = ""
    by: str = "none"
    groups: str = ""
    once: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        increasing("thresholds", self.thresholds, self.ends)
        one_of("by", self.by, BY)
        _ = self.conformity  # raises InputError for an invalid score
        if (self.by == "group") != bool(self.names):  # and for invalid names
            raise InputError("groups and by = 'group' need each other")

    @cached_property
    def conformity(self) -> Conformity:
        """Conformity score of the labels."""
        return Conformity(self.score, self.randomised, self.penalty, self.free, self.calibrator)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the groups; () = rows are not counted by group."""
        return score_table.check_names(self.groups) if self.groups else ()

    @property
    def parts(self) -> int:
        """Number of parts of the rows; with groups, all other rows are one more part."""
        return {"none": 1, "class": self.classes, "group": len(self.names) + 1}[self.by]

    @override
    def counts_rows(self, bound: units.Bound) -> bool:
        most = min(bound.norms, default=0.0) * bound.most
        return not self.once and self.row_norm(bound.order) <= most

    def rows_by_bucket(self, shards: Shards) -> Integers:
        """Rows in each bucket, and above the last threshold, (clients, parts, thresholds + 1)."""
        of, buckets = self.conformity, len(self.thresholds) + 1
        part = shards.labels if self.by == "class" else group_of(shards, self.names)
        scores = shards.derived(
            ("conformity", of), lambda s: of.of_labels(s.logits, s.labels, s.input)
        )
        bucket = np.searchsorted(self.thresholds, scores, side="left")
        cells = (shards.owner * self.parts + part) * buckets + bucket
        shape = (shards.clients, self.parts, buckets)
        if self.once:
            cells = cells[drawn(shards, _APART)]
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)


@dataclass(frozen=True, eq=False)
class SetGaps(SetQuery):
    """Sum over rows of [score <= t] - need, for each threshold t.

    With need = 1 - alpha it is the number of rows with a score of at most t minus 1 -
    alpha times the number of rows. The number of rows need not be known, and for all rows of a
    client the sum is about the root of their number near the threshold in question (a residual
    query). It grows with t.

    Answers are (parts, thresholds), each clipped by itself. As candidates of a draw they have
    `costs`.

    Parameters
    ----------
    need
        in [0, 1]
    level
        L, in answers: the level that the sum should reach
    tilt
        cost of a candidate for each step away from the last one
    """

    kind = "set_gaps"
    rule = "per_value"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        _at(0.25, 0.5, 1.0, need=0.9),
        _at(0.7, 1.0, need=0.8, by="class"),
    )

    need: Annotated[float, interval("[0, 1]")] = 0.0
    level: Finite = 0.0
    tilt: NotNegative = 0.0

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all numbers."""
        return (self.parts * len(self.thresholds),)

    def row_norm(self, order: Order) -> float:
        """Return the largest absolute value that a row adds to a number."""
        return max(1.0 - self.need, self.need)

    def added(self, part: Part, order: Order) -> float:
        """Return the largest absolute value that a row adds to a number."""
        return self.row_norm(order) * ROOM

    def costs(self, sums: Floats) -> Floats:
        """Return the distance of each threshold from the one where the sum crosses the level, (m,).

        It is max{S_{j-1} - L, L - S_j, 0}, and for the last threshold, of all labels, without the
        second term: so at least one threshold costs nothing. Both terms change by at most C if
        every S_j does, and so do costs. The tilt is public.
        """
        before = np.concatenate([[-np.inf], sums[:-1]]) - self.level
        after = np.concatenate([self.level - sums[:-1], [-np.inf]])
        later = np.arange(len(sums) - 1, -1, -1)
        return np.asarray(np.maximum(np.maximum(before, after), 0.0) + self.tilt * later)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """sum_i ([score_i <= t] - need) of each part and threshold.

        Returns (clients, parts * thresholds).
        """
        counts = self.rows_by_bucket(shards).astype(np.float64)
        rows = counts.sum(axis=2, keepdims=True)
        sums = np.cumsum(counts, axis=2)[:, :, :-1] - rows * self.need
        return np.asarray(sums.reshape(shards.clients, -1))

    def add_rows(self, sums: ClientSums, shards: Shards, ring: Ring) -> None:
        """Add up rows at or below each threshold, and all others."""
        counts = self.rows_by_bucket(shards)
        below, rows = np.cumsum(counts, axis=2)[:, :, :-1], counts.sum(axis=2, keepdims=True)
        values = ring.encode(np.array([[1.0 - self.need, -self.need]]))
        parts = [
            (below * each[0, 0] + (rows - below) * each[0, 1]).reshape(shards.clients, -1)
            for each in halves_of(values)
        ]
        sums.add_halves(*parts)


@dataclass(frozen=True, eq=False)
class SetRanks(SetGaps):
    """Numbers of rows with a score of at most each threshold, as candidates for a quantile.

    They are the sums of `SetGaps` with need = 0; the last threshold is 1, so the last sum is n.

    Parameters
    ----------
    quantile
        q, in (0, 1): the fraction of rows that the drawn threshold should be above
    """

    kind = "set_ranks"
    signed = False
    examples = _at(0.25, 0.5, 1.0, quantile=0.9), _at(0.5, 1.0, quantile=0.4)

    ends = "up to 1"
    quantile: Annotated[float, interval("(0, 1)")] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        same("parts of rows, of which a quantile is,", self.parts, 1)

    def costs(self, sums: Floats) -> Floats:
        """Return the `quantile_costs` of `fedcal.conformal.levels`.

        A row raises each cost by 0 to 1.
        """
        return quantile_costs(np.diff(sums, prepend=0.0), self.quantile)


@dataclass(frozen=True, eq=False)
class SetCounts(SetQuery):
    """Encoded number of rows of each part in each bucket of the score.

    The last threshold is 1. The answer is the product of each part's counts and the matrix of the
    encoding (`fedcal.metrics.score_table`); a row is a 1 in one count.

    Parameters
    ----------
    encoding, height
        of each part's counts
    """

    kind = "set_counts"
    signed = False
    examples = (
        _at(0.25, 0.5, 1.0),
        _at(0.3, 0.6, 0.9, 1.0, encoding="prefix"),
        _at(0.3, 0.6, 1.0, encoding="tree", height=2, by="class"),
    )

    ends = "up to 1"
    encoding: str = "flat"
    height: score_table.Height = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        score_table.check_encoding(self.encoding, len(self.thresholds), self.height)

    @property
    def matrix(self) -> Floats:
        """Matrix that maps a part's counts to answers, (answers, buckets)."""
        return score_table.matrix_of(self.encoding, len(self.thresholds), self.height)

    @property
    def decoder(self) -> Floats:
        """Matrix that maps a part's answers to counts, (buckets, answers)."""
        return score_table.decoder_of(self.encoding, len(self.thresholds), self.height)

    def decode(self, answers: Floats) -> Floats:
        """Return counts from a sum of answers, (parts, buckets)."""
        return np.asarray(answers.reshape(self.parts, -1) @ self.decoder.T)

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all numbers."""
        return (self.parts * len(self.matrix),)

    def counts_integers(self, part: Part) -> bool:
        """Return whether a row, or the only row of a subject, adds integers."""
        return part == Example.per or (part == Subject.per and self.once)

    def row_norm(self, order: Order) -> float:
        """Return the largest norm of the contribution of a row to all numbers together."""
        return score_table.column_norm(self.encoding, len(self.thresholds), self.height, order)

    @override
    def added(self, part: Part, order: Order) -> float:
        return self.row_norm(order)

    @override
    def unclipped(self, norm: float) -> float:
        return with_room(norm)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Rows in each bucket of each part, encoded.

        Returns (clients, numbers) in rows times the encoding's weights.
        """
        counts = self.rows_by_bucket(shards)[:, :, :-1].astype(np.float64)  # whole numbers: exact
        coded = counts if self.encoding == "flat" else counts @ self.matrix.T
        return coded.reshape(shards.clients, -1)

    def add_rows(self, sums: ClientSums, shards: Shards, ring: Ring) -> None:
        """Add up encoded rows by how many are in each bucket."""
        counts = self.rows_by_bucket(shards)[:, :, :-1]
        sums.add_halves(*counted_words(counts, ring.encode(self.matrix.T)))
