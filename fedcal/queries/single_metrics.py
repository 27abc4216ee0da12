"""Question for one metric alone: the mean of a value of rows.

It asks for differences from an expected value. Over all rows of one client these sum to about the
root of their number, while counts sum to the number itself: so a small clip is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import Score, arcsine, check_score, parts_of
from fedcal.queries.base import Classes, Finite, Order, Part, Positive, Summed, Vector, within
from fedcal.queries.evaluation import SubjectRows, rows_in
from fedcal.units.bounding import Rule

Candidates = Annotated[int, within(1, 65536)]
_LARGEST_VALUE = 1e6


@dataclass(frozen=True, eq=False)
class MeanGaps(Summed):
    """Sum over rows of (value - a), for each candidate a of their mean value, times `gain`.

    The sum over all clients falls with a and crosses zero at the mean; the number of rows need not
    be known. A row's value depends on its score and outcome: it is linear between knots that are
    equally spaced in arcsin sqrt(score). `bound` needs a client's clip of each candidate's sum,
    after `gain`.

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
        number of candidates, the ends included; if it is 1, low = high
    gain
        factor of sums before they are clipped
    numbers
        length of the answer: zeros follow the sum at a single candidate, where the answers of all
        rounds of a run have one length
    subject_rows
        as in `ScoreCounts`
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

    classes: Classes
    score: str
    values: Vector
    low: Finite
    high: Finite
    points: Candidates = 1
    gain: Positive = 1.0
    numbers: Candidates = 1
    subject_rows: SubjectRows = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        values, points, low, high = self.values, self.points, self.low, self.high
        if len(values) < 4 or len(values) % 2 or np.abs(values).max() > _LARGEST_VALUE:
            raise InputError(
                f"values must be an even number of at least 4, within +-1e6, got {len(values)}"
            )
        if (values == values[0]).all():
            raise InputError(f"all values are {values[0]:g}: their mean is known")
        if not 0 <= low <= high <= 1 or (points == 1) != (low == high):
            raise InputError(
                f"{points} candidates in [0, 1] cannot lie from low = {low:g} to high = {high:g}"
            )
        self._set(score=one_part(self.score, self.classes))
        if points > 1 and self.numbers > 1:
            raise InputError("zeros follow the sum at a single candidate only")

    @property
    def candidates(self) -> Floats:
        """Candidates of the mean, (points,), increasing."""
        return np.asarray(np.linspace(self.low, self.high, self.points))

    def value_of(self, scores: Floats, outcomes: Integers) -> Floats:
        """Return the value of each row, (n,)."""
        knots = np.linspace(0.0, 1.0, len(self.values) // 2)
        at = arcsine(scores)
        negative, positive_ = (np.interp(at, knots, half) for half in np.split(self.values, 2))
        return np.asarray(np.where(outcomes == 1, positive_, negative))

    def lengths(self) -> tuple[int, ...]:
        """Return one block with a sum for each candidate, or with one sum and zeros."""
        return (max(self.points, self.numbers),)

    @property
    def row_bound(self) -> float:
        """Largest absolute value that one row adds to any of the sums, before `gain`."""
        lowest, highest = float(self.values.min()), float(self.values.max())
        return max(highest - self.low, self.high - lowest, 1e-9)

    @property
    def rule(self) -> Rule:
        """Rule that clips each sum by itself."""
        return "per_value" if self.points > 1 else "joint"

    def added(self, part: Part, order: Order) -> float:
        """Return the largest absolute value that a row or a subject adds to a sum."""
        return self.row_bound * self.gain * rows_in(part, self.subject_rows)


def one_part(score: str, classes: int) -> Score:
    """Return a score of which each row has one, or raise InputError."""
    if score == "":
        raise InputError("score must be positive or confidence")
    checked = check_score(score, classes)
    if parts_of(checked, classes) > 1:
        raise InputError("score 'classes' has a part for each class; allowed: positive, confidence")
    return checked
