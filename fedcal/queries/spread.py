"""Question for intervals for new clients: variation of metrics from client to client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.queries.base import Classes, Numbers, Order, Part, Summed, Vector, not_too_long
from fedcal.queries.evaluation import ScoreCounts, SubjectRows, rows_in, with_room
from fedcal.queries.single_metrics import one_part

FOLDS = 20
"""Folds of the clients, whose sums are separate."""


@dataclass(frozen=True, eq=False)
class ScoreSpread(Summed):
    """Sum over a client's rows of one weight for each metric, by the row's outcome and bucket.

    A weight is the change of a metric by a row (`fedcal.evaluation.intervals.clusters`). An answer
    has a place for each of `FOLDS` folds: the statistic puts the sums into the first one, and
    before a client sends them they move to the fold of its number. A real site has no number and
    draws a fold, which does not depend on the rows.

    Parameters
    ----------
    classes
        of the model
    edges
        (buckets + 1,) of the buckets, from 0 to 1; one number = the number of buckets of equal
        width
    weights
        of the counts (2, buckets) for each metric, flat
    score
        see `fedcal.metrics.buckets`; not "classes"
    pad
        zeros at the end of an answer, so that all questions of a run have one length
    subject_rows
        as in `ScoreCounts`
    """

    kind = "score_spread"
    facts = ("classes",)
    learned = ("weights",)
    cuts = ("edges",)
    folds: ClassVar[int] = FOLDS
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {
            "classes": 3,
            "edges": np.array([3.0]),
            "weights": np.array([-0.5, -1.0, -1.0, 0.5, 1.0, 1.0]),
        },
        {
            "classes": 3,
            "edges": np.array([0.0, 0.5, 0.7, 1.0]),
            "weights": np.array([-0.6, -0.6, -0.5, 0.4, 0.4, 0.2, 0.2, -0.4, 0.1, 0.3, 0.2, 0.5]),
            "pad": 3,
        },
    )

    classes: Classes
    edges: Any
    weights: Vector
    score: str = "confidence"
    pad: Numbers = 0
    subject_rows: SubjectRows = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = ScoreCounts(self.classes, self.edges, self.score)
        self._set(edges=counts.edges, score=one_part(self.score, counts.classes))
        if len(self.weights) % (2 * counts.buckets):
            raise InputError(f"{len(self.weights)} weights for 2 x {counts.buckets} counts")
        not_too_long(self)

    @cached_property
    def as_counts(self) -> ScoreCounts:
        """Question for the counts that the weights apply to."""
        return ScoreCounts(self.classes, self.edges, self.score)

    @property
    def by_metric(self) -> Floats:
        """Weights as (metrics, 2 * buckets)."""
        return np.asarray(self.weights.reshape(-1, 2 * self.as_counts.buckets))

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all metrics of all folds."""
        return (len(self.by_metric) * self.folds + self.pad,)

    def added(self, part: Part, order: Order) -> float:
        """Return the largest norm of what a row or a subject adds to all numbers together."""
        norm = max(float(np.linalg.norm(self.by_metric, order, axis=0).max()), 1e-9)
        norm *= rows_in(part, self.subject_rows)
        return with_room(norm)


@dataclass(frozen=True, eq=False)
class ScoreSquares(ScoreSpread):
    """Squares of a client's sums of `ScoreSpread`, without folds; they are not a sum over rows.

    It is for a guarantee that hides complete clients, or for none: a row's part of a square has no
    bound. `bound` needs a client's clip of all squares together.
    """

    kind = "score_squares"
    row_sums = False
    signed = False
    folds = 1
