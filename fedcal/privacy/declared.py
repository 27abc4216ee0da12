"""Questions that the rounds of a job may ask: fixed parameters, and ranges of moving ones.

A method declares its questions before anything is learned (`Method.questions`). The server asks no
other questions, and a site that builds the method from the job's settings answers no others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from typing import Any, Self

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.fields import MOST_TEXT, strict
from fedcal.privacy.query import Query

_ROUNDING = 1e-9
"""Relative error of a parameter: exp(log(x)) is not x, and types of CPU differ in last digits."""


@dataclass(frozen=True)
class Range:
    """Allowed values of a parameter that moves from round to round.

    Attributes
    ----------
    low, high
        of each number, both included
    least, most
        numbers of a vector; 0 and 0 = a single number
    whole
        whether numbers must be whole
    """

    low: float = -math.inf
    high: float = math.inf
    least: int = 0
    most: int = 0
    whole: bool = False

    def holds(self, value: Any) -> bool:
        """Return whether a parameter lies within the range."""
        if isinstance(value, bool) or not isinstance(value, Real | np.ndarray | tuple):
            return False
        numbers = np.asarray(value, np.float64)
        if numbers.ndim != bool(self.most) or not self.least <= numbers.size <= max(self.most, 1):
            return False
        ends = [abs(end) for end in (self.low, self.high) if math.isfinite(end)]
        room = _ROUNDING * max(ends, default=0.0)
        within = (numbers >= self.low - room) & (numbers <= self.high + room)
        return bool(within.all()) and not (self.whole and (numbers != np.round(numbers)).any())

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.most:
            kind = f"{self.least} to {self.most} numbers"
        return f"{kind} in [{self.low:g}, {self.high:g}]"


SEED = Range(0, 2.0**64, whole=True)
"""Seed that chooses rows by a hash, or their order; it is not a fact of the job."""


@dataclass(frozen=True)
class Question:
    """Kind of question that some rounds of a job may ask.

    Attributes
    ----------
    kind
        of the query
    fixed
        field -> its only value; every field that does not move
    moving
        field -> its range
    rounds
        first and last round that may ask it
    cells
        maximum numbers of an answer: rows are partitioned into no more cells. Infinite where the
        server chooses the cells in the run
    """

    kind: str
    fixed: Mapping[str, Any]
    moving: Mapping[str, Range]
    rounds: tuple[int, int]
    cells: float

    @classmethod
    def like(cls, query: Query, rounds: tuple[int, int], **moving: Range) -> Self:
        """Declare a query, of which the fields in `moving` may change.

        Parameters
        ----------
        query
            an example of it; with the longest answer, where answers differ
        rounds
            first and last round that may ask it
        moving
            a vector that keeps the example's length needs no `least` and `most`
        """
        values = {f.name: getattr(query, f.name) for f in fields(query)}
        sized = {name: _sized(allowed, values[name]) for name, allowed in moving.items()}
        fixed = {name: value for name, value in values.items() if name not in moving}
        anywhere = any(name in moving for name in query.cuts)
        cells = math.inf if anywhere else float(sum(query.lengths()))
        return cls(query.kind, fixed, sized, rounds, cells)

    def is_of(self, round_number: int) -> bool:
        """Return whether a round may ask it."""
        return self.rounds[0] <= round_number <= self.rounds[1]

    def differs(self, query: Query) -> str:
        """Return the first parameter of a query that is not as declared, in words; "" = none."""
        for name, own in self.fixed.items():
            if not _same(value := getattr(query, name), own):
                return f"{name} = {_short(value)} instead of {_short(own)}"
        for name, allowed in self.moving.items():
            if not allowed.holds(value := getattr(query, name)):
                return f"{name} = {_short(value)} instead of {allowed}"
        numbers = sum(query.lengths())
        return "" if numbers <= self.cells else f"{numbers} cells instead of {self.cells:g} at most"

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for a strict JSON file, for `from_plain`."""
        moving = {
            name: {**asdict(allowed), "low": float(allowed.low), "high": float(allowed.high)}
            for name, allowed in self.moving.items()
        }
        plain: dict[str, Any] = strict({**vars(self), "moving": moving})
        return plain

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the question of `to_plain` values, whoever wrote them; see `check_declared`."""
        moving = {
            str(name): Range(
                **{**allowed, "low": float(allowed["low"]), "high": float(allowed["high"])}
            )
            for name, allowed in values["moving"].items()
        }
        first, last = values["rounds"]
        own = {"moving": moving, "rounds": (int(first), int(last)), "cells": float(values["cells"])}
        return cls(**{**values, **own})


def check_question(questions: Sequence[Question], round_number: int, query: Query) -> None:
    """Refuse a query that no question declares for this round.

    Raises InputError with one line that names the difference.
    """
    may = [q for q in questions if q.is_of(round_number)]
    why = [q.differs(query) for q in may if q.kind == query.kind]
    if "" in why:
        return
    kinds = " or ".join(sorted({q.kind for q in may})) or "nothing"
    difference = why[0] if why else f"it may ask {kinds}"
    raise InputError(
        f"the question '{query.kind}' of round {round_number} is not one of the job's method with "
        f"its settings: {difference}"
    )


def _sized(allowed: Range, example: Any) -> Range:
    if allowed.most or not isinstance(example, np.ndarray | tuple):
        return allowed
    return replace(allowed, least=len(example), most=len(example))


def _same(value: Any, own: Any) -> bool:
    """Return whether two values are equal up to the rounding of another type of CPU."""
    vector, own_vector = (np.ndim(v) > 0 for v in (value, own))
    if vector or own_vector:
        return np.shape(value) == np.shape(own) and np.allclose(value, own, _ROUNDING, 0.0)
    if isinstance(value, float) and isinstance(own, float):
        return math.isclose(value, own, rel_tol=_ROUNDING)
    return isinstance(value, bool) == isinstance(own, bool) and bool(value == own)


def _short(value: Any) -> str:
    return " ".join(str(value).split())[: MOST_TEXT // 3]
