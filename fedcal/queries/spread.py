"""The question behind intervals for new clients: how much do metrics vary from client to client?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.queries.base import MOST_NUMBERS, Order, Param, Part, Query, not_too_long, vector
from fedcal.queries.evaluation import ROOM, ScoreCounts, rows_in, subject_rows_of
from fedcal.queries.single_metrics import one_part
from fedcal.units.bounding import SLACK, Bound

FOLDS = 20
"""Parts of the clients whose sums are kept apart."""


@dataclass(frozen=True, eq=False)
class ScoreSpread(Query):
    """Sum over a client's rows of one weight for each metric, by the row's outcome and bucket.

    The weights are what a row changes metrics by (`fedcal.evaluation.intervals.clusters`). An
    answer has a place for each of `FOLDS` folds: the statistic puts the sums into the first one,
    and before a client sends them they move to the fold of its number, or to one drawn by a real
    site, which has none: it does not depend on the rows.

    Parameters
    ----------
    classes
        of the model
    edges
        (buckets + 1,) of the buckets, from 0 to 1; one number = so many buckets of equal width
    weights
        of the counts (2, buckets) for each metric, flat
    score
        see `fedcal.metrics.buckets`; not "classes"
    pad
        zeros at the end of an answer, so that all questions of a run have one length
    subject_rows
        as of `ScoreCounts`
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

    classes: int
    edges: Any
    weights: Any
    score: str = "confidence"
    pad: int = 0
    subject_rows: int = 0

    def __post_init__(self) -> None:
        counts = ScoreCounts(self.classes, self.edges, self.score)
        self._set(
            classes=counts.classes,
            edges=counts.edges,
            score=one_part(self.score, counts.classes),
            weights=vector("weights", self.weights),
            pad=whole("pad", self.pad, 0, MOST_NUMBERS),
            subject_rows=subject_rows_of(self.subject_rows),
        )
        if len(self.weights) % (2 * counts.buckets):
            raise InputError(f"{len(self.weights)} weights for 2 x {counts.buckets} counts")
        not_too_long(self)

    @cached_property
    def as_counts(self) -> ScoreCounts:
        """The question for the counts that the weights are of."""
        return ScoreCounts(self.classes, self.edges, self.score)

    @property
    def by_metric(self) -> Floats:
        """The weights, (metrics, 2 * buckets)."""
        return np.asarray(self.weights.reshape(-1, 2 * self.as_counts.buckets))

    def lengths(self) -> tuple[int, ...]:
        """All metrics of all folds."""
        return (len(self.by_metric) * self.folds + self.pad,)

    def params(self) -> Mapping[str, Param]:
        """All but the classes."""
        names = ("edges", "weights", "score", "pad", *("subject_rows",) * bool(self.subject_rows))
        return {name: getattr(self, name) for name in names}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """All numbers together: of a client to its clip, else to what a row or subject adds."""
        if self.takes(part, clips, 1):
            return Bound(self.lengths(), (clips[0],), order=order)
        norm = max(float(np.linalg.norm(self.by_metric, order, axis=0).max()), 1e-9)
        norm *= rows_in(part, self.subject_rows)
        return Bound(self.lengths(), (norm * ROOM / (1.0 - SLACK),), order=order)


@dataclass(frozen=True, eq=False)
class ScoreSquares(ScoreSpread):
    """The squares of a client's sums of `ScoreSpread`, no folds: no sum over rows any more.

    For a guarantee that hides whole clients, or for none: a row's part of a square has no bound.
    `bound` takes a client's clip of all squares together.
    """

    kind = "score_squares"
    row_sums = False
    signed = False
    folds = 1

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """All squares together, to the clip."""
        self.takes(part, clips, 1)
        return Bound(self.lengths(), (clips[0],), order=order)
