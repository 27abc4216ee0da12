"""Questions for one metric alone: the mean of a value of rows, and the gaps of calibration.

Both ask for differences from what is expected, which for all rows of one client add up to about the
root of their number, where counts add up to the number itself: a clip that suits them is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedcal.core.checks import positive, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import Score, arcsine, check_score, parts_of
from fedcal.queries.base import Order, Param, Part, Query, finite, flag, number_of_classes, vector
from fedcal.queries.encodings import check_encoding, column_norm, matrix_of
from fedcal.queries.evaluation import rows_in, subject_rows_of
from fedcal.units.bounding import Bound

MOST_CANDIDATES = 65536
_LARGEST_VALUE = 1e6


@dataclass(frozen=True, eq=False)
class MeanGaps(Query):
    """Sum over rows of (value - a), for each candidate a of their mean value, times `gain`.

    The sum over all clients falls with a and crosses zero at the mean; how many rows there are
    need not be known. A row's value depends on its score and outcome: it is linear between
    knots that are equally far apart in arcsin sqrt(score). `bound` takes a client's clip of each
    candidate's sum, after `gain`.

    Parameters
    ----------
    classes
        of the model
    score
        see `fedcal.metrics.buckets`; not "classes"
    values
        (2 * knots,) values of rows of outcome 0 at the knots, then of outcome 1; knots >= 2
    low, high
        ends of the grid of candidates, in [0, 1]
    points
        how many, the ends included; with one of them low = high
    gain
        what sums are multiplied by before they are clipped
    numbers
        of the answer: zeros follow the sum at a single candidate, where the answers of all rounds
        of a run have one length
    subject_rows
        as of `ScoreCounts`
    """

    kind = "mean_gaps"
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {
            "classes": 3,
            "score": "confidence",
            "values": np.array([0.0, 0.0, 1.0, 1.0]),
            "low": 0.7,
            "high": 0.7,
            "numbers": 3,
        },
        {
            "classes": 3,
            "score": "confidence",
            "values": np.array([0.9, 0.4, 0.25, -0.1, 0.5, 1.75]),
            "low": 0.0,
            "high": 1.0,
            "points": 5,
            "gain": 0.5,
        },
    )

    classes: int
    score: str
    values: Any
    low: float
    high: float
    points: int = 1
    gain: float = 1.0
    numbers: int = 1
    subject_rows: int = 0

    def __post_init__(self) -> None:
        values = vector("values", self.values)
        if len(values) < 4 or len(values) % 2 or np.abs(values).max() > _LARGEST_VALUE:
            raise InputError(
                f"values must be an even number of at least 4, within +-1e6, got {len(values)}"
            )
        if (values == values[0]).all():
            raise InputError(f"all values are {values[0]:g}: their mean needs no question")
        classes = number_of_classes(self.classes)
        points = whole("points", self.points, 1, MOST_CANDIDATES)
        low, high = finite("low", self.low), finite("high", self.high)
        if not 0 <= low <= high <= 1 or (points == 1) != (low == high):
            raise InputError(
                f"{points} candidates in [0, 1] cannot lie from low = {low:g} to high = {high:g}"
            )
        self._set(
            classes=classes,
            values=values,
            low=low,
            high=high,
            points=points,
            score=one_part(self.score, classes),
            gain=positive("gain", self.gain),
            numbers=whole("numbers", self.numbers, 1, MOST_CANDIDATES),
            subject_rows=subject_rows_of(self.subject_rows),
        )
        if points > 1 and self.numbers > 1:
            raise InputError("zeros follow the sum at a single candidate only")

    @property
    def candidates(self) -> Floats:
        """(points,)."""
        return np.asarray(np.linspace(self.low, self.high, self.points))

    def value_of(self, scores: Floats, outcomes: Integers) -> Floats:
        """Value of each row, (n,)."""
        knots = np.linspace(0.0, 1.0, len(self.values) // 2)
        at = arcsine(scores)
        negative, positive_ = (np.interp(at, knots, half) for half in np.split(self.values, 2))
        return np.asarray(np.where(outcomes == 1, positive_, negative))

    def lengths(self) -> tuple[int, ...]:
        """One sum for each candidate, or one and zeros."""
        return (max(self.points, self.numbers),)

    def params(self) -> Mapping[str, Param]:
        """All but the classes."""
        names = ("score", "values", "low", "high", "points", "gain", "numbers")
        return {name: getattr(self, name) for name in (*names, *_weighed(self.subject_rows))}

    @property
    def row_bound(self) -> float:
        """What one row adds to any of the sums at most, before `gain`."""
        lowest, highest = float(self.values.min()), float(self.values.max())
        return max(highest - self.low, self.high - lowest, 1e-9)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Each sum by itself: of a client to its clip, of a row to what a row adds."""
        whole_client = self.takes(part, clips, 1)
        norm = self.row_bound * self.gain * rows_in(part, self.subject_rows)
        norm = clips[0] if whole_client else norm
        return Bound(self.lengths(), (norm,), "per_value" if self.points > 1 else "joint", order)


@dataclass(frozen=True, eq=False)
class ScoreGaps(Query):
    """Sum of (outcome - score) over the rows of each bucket of the score, encoded, times `gain`.

    Where scores are probabilities of the outcome, the sums are 0 on average: what is asked for is
    how far the model is from calibrated. `bound` takes a client's clip of all numbers together.

    Parameters
    ----------
    classes
        of the model
    score
        see `fedcal.metrics.buckets`; not "classes"
    buckets
        of equal width
    encoding, height
        see `fedcal.queries.encodings`
    gain
        what answers are multiplied by before they are clipped
    count
        send also how many rows there are (without privacy: nothing bounds that)
    subject_rows
        as of `ScoreCounts`
    """

    kind = "score_gaps"
    facts = ("classes",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"classes": 3, "score": "confidence", "buckets": 4},
        {
            "classes": 3,
            "score": "confidence",
            "buckets": 6,
            "encoding": "prefix",
            "gain": 0.125,
        },
    )

    classes: int
    score: str
    buckets: int
    encoding: str = "flat"
    height: int = 1
    gain: float = 1.0
    count: bool = False
    subject_rows: int = 0

    def __post_init__(self) -> None:
        check_encoding(self.encoding, self.buckets, self.height)
        classes = number_of_classes(self.classes)
        self._set(
            classes=classes,
            buckets=int(self.buckets),
            height=int(self.height),
            score=one_part(self.score, classes),
            gain=positive("gain", self.gain),
            count=flag("count", self.count),
            subject_rows=subject_rows_of(self.subject_rows),
        )

    @property
    def matrix(self) -> Floats:
        """Of the encoding, (answers, buckets)."""
        return matrix_of(self.encoding, self.buckets, self.height)

    def lengths(self) -> tuple[int, ...]:
        """All gaps in one block, the count."""
        return (len(self.matrix), 1) if self.count else (len(self.matrix),)

    def params(self) -> Mapping[str, Param]:
        """All but the classes."""
        names = ("score", "buckets", "encoding", "height", "gain", "count")
        return {name: getattr(self, name) for name in (*names, *_weighed(self.subject_rows))}

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """All numbers together: of a client to its clip; a row is in one bucket, and adds <= 1."""
        if self.count:
            raise InputError("rows are counted without privacy only")
        if self.takes(part, clips, 1):
            return Bound(self.lengths(), (clips[0],), order=order)
        norm = column_norm(self.encoding, self.buckets, self.height, order) * self.gain
        return Bound(self.lengths(), (norm * rows_in(part, self.subject_rows),), order=order)


def _weighed(subject_rows: int) -> tuple[str, ...]:
    """The parameter's name where it is not the default."""
    return ("subject_rows",) if subject_rows else ()


def one_part(score: str, classes: int) -> Score:
    """A score that a row has one of, or InputError."""
    if score == "":
        raise InputError("score must be positive or confidence")
    checked = check_score(score, classes)
    if parts_of(checked, classes) > 1:
        raise InputError("score 'classes' has a part for each class; allowed: positive, confidence")
    return checked
