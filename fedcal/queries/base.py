"""What every question is: typed parameters, the shape of its answer, and its public bound.

A question is checked where it is made, on the server, and where it is read, on the client: what a
client computes never depends on a number that no server of this version would send.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from numbers import Real
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

from fedcal.core.checks import one_of, positive, whole
from fedcal.core.errors import InputError
from fedcal.core.streams import check_seed, key_of
from fedcal.core.types import Floats
from fedcal.units import UNITS
from fedcal.units.bounding import Bound, Per, Rule

Scalar = bool | int | float | str
Param = Scalar | Floats
"""A parameter of a statistic: a scalar, or a vector of parameters (size,) float64."""

Part = Per
"""Whose contribution a bound is about: all of a client's, or what one subject or one row adds."""

Order = Literal[1, 2]

MOST_NUMBERS = 2**27
"""Numbers of one client's answer: more do not fit any memory that clients have (1 GiB)."""

MOST_CLASSES = 10**6
MOST_TEXT = 300
"""Characters that are said of a value that came over the wire."""


@dataclass(frozen=True, eq=False)
class Query(ABC):
    """A question to the clients; a subclass for each, its fields are the statistic's parameters.

    A subclass is a frozen dataclass (with `eq=False` where a field is an array: equality is
    defined here). Each field is checked by its type (see the end of this module); what several of
    them must be together a subclass checks in `__post_init__`.

    Attributes
    ----------
    kind
        name on the wire, and of the clients' statistic
    version
        of the parameters' meaning; a client refuses any but its own
    row_sums
        whether a client's answer is the sum of what its rows add, so that the part of a row,
        or of a subject, may be clipped by itself
    signed
        whether a number of an answer may be negative
    everyone
        ask all enrolled clients, not this round's sample (no privacy only)
    asked_once
        each client answers in one round of a run only: rounds are for disjoint parts of the clients
    fine
        an answer adds up many rows: its grid is as fine as they leave room for (`Plan.fine`)
    by_site
        an answer draws on the number of the client's site, as the order of its rows
    cuts
        fields that say where rows are told apart: who chooses these in the run chooses how few
        rows a count is of
    optional
        parameters that travel only where they are not the default; None = all that have one
    facts
        fields that are no parameters of the statistic, but of the bound and the lengths: public
        facts such as `classes`. They travel beside the question, and are in no noise key
    learned
        parameters computed from earlier answers whose digits depend on the processor (of clients'
        own fits, of differences that are near 0). They are in no noise key: one digit would give
        the round other noise. Two runs of one seed and plan whose questions differ in these alone
        share the round's noise, as they share the first round's whatever their rows are: seeds are
        for simulation, and sites draw from the operating system
    examples
        small constructor arguments, for a problem of three classes; at most ten
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    row_sums: ClassVar[bool] = True
    signed: ClassVar[bool] = True
    everyone: ClassVar[bool] = False
    asked_once: ClassVar[bool] = False
    fine: ClassVar[bool] = False
    by_site: ClassVar[bool] = False
    cuts: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...] | None] = ("subject_rows",)
    facts: ClassVar[tuple[str, ...]] = ()
    learned: ClassVar[tuple[str, ...]] = ()
    examples: ClassVar[tuple[Mapping[str, Any], ...]]

    def __post_init__(self) -> None:
        for name, check in _checks(type(self)).items():
            self._set(**{name: check(getattr(self, name))})

    @classmethod
    def example(cls, number: int, classes: int) -> Self | None:
        """One of `examples` for another number of classes; None where a vector has no other size.

        A question whose vectors depend on the classes says in `resized` how long they are.
        """
        given = dict(cls.examples[number])
        vectors = any(np.ndim(value) for value in cls(**given).params().values())
        given |= {name: classes for name in cls.facts if name == "classes"}
        resized = cls.resized(given, classes)
        return None if vectors and resized is None else cls(**{**given, **(resized or {})})

    @classmethod
    def resized(cls, example: Mapping[str, Any], classes: int) -> Mapping[str, Any] | None:
        """The arguments of an example that are vectors, for so many classes; None = no rule."""
        return None

    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """Numbers in each block of an answer."""

    def params(self) -> Mapping[str, Param]:
        """What travels of the fields; all but `learned` are part of the key of seeded noise."""
        found: dict[str, Param] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in self.facts or value is None:
                continue
            if isinstance(value, (np.ndarray, tuple)):
                found[field.name] = np.asarray(value)
            elif value != field.default or (
                self.optional is not None and field.name not in self.optional
            ):
                found[field.name] = value
        return found

    @abstractmethod
    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """What one client, or a smaller part of one, may add to the answer.

        Parameters
        ----------
        part
            "client": as `clips` says; "subject", "row": follows from the question alone
        clips
            the method's own public clip values, in the units of the answer
        order
            norm that is bounded, 1 or 2

        Raises
        ------
        InputError
            If the question is no sum over rows, or has no use for so many clips.
        """

    @property
    def key(self) -> str:
        """What tells this question from others."""
        return key_of(self.kind, self.params())

    @property
    def noise_key(self) -> str:
        """The same but for what is `learned`: part of the key of seeded noise."""
        return key_of(self.kind, {k: v for k, v in self.params().items() if k not in self.learned})

    @property
    def reads(self) -> tuple[int, ...] | None:
        """Shape of one input of the network that it is about; None = it is about scores."""
        return None

    def costs(self, sums: Floats) -> Floats | None:
        """What each candidate of a draw costs, by exact sums; None = by absolute values.

        `sums` and the costs are (length,), (candidates,). The changes of two candidates' costs by
        one neighbour must differ by at most two norms of the bound.
        """
        return None

    @classmethod
    def part(cls, unit: str) -> Part:
        """The part of a client that is clipped by itself, where `unit` is protected."""
        return UNITS[unit].per if cls.row_sums else "client"

    @classmethod
    def read(cls, params: Mapping[str, Any], facts: Mapping[str, Any]) -> Self:
        """The question with these parameters, as they came over the wire.

        Raises InputError if one is missing, unknown or not allowed.
        """
        needed = {f.name: f.default is MISSING for f in fields(cls)}
        for name in params:
            if name not in needed or name in cls.facts:
                raise InputError(f"the query {cls.kind!r} has no parameter {name!r}")
        known = {name: facts[name] for name in cls.facts if name in facts}
        for name, must in needed.items():
            if must and name not in params and name not in known:
                raise InputError(f"the query {cls.kind!r} has no value of {name!r}")
        try:
            return cls(**params, **known)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InputError):  # a long value may have been printed in many lines
                raise InputError(" ".join(str(error).split())[:MOST_TEXT]) from None
            raise InputError(
                f"a parameter of the query {cls.kind!r} holds something else than it should"
            ) from None

    def takes(self, part: Part, clips: Sequence[float], number: int) -> bool:
        """Whether a bound is about all of a client's part, by its `number` clips; or InputError."""
        one_of("part", part, get_args(Part))
        if part == "client":
            if len(clips) != number:
                raise InputError(f"the query {self.kind!r} takes {number} clips, got {len(clips)}")
            return True
        if not self.row_sums:
            raise InputError(f"the answer to {self.kind!r} is no sum over rows: a {part} has none")
        return False

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values()))

    def _values(self) -> tuple[Any, ...]:
        values = (getattr(self, f.name) for f in fields(self))
        return tuple(v.tobytes() if isinstance(v, np.ndarray) else v for v in values)

    def _set(self, **values: Any) -> None:
        """Keep checked values in place of the given ones."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


class Summed(Query):
    """A question whose bound is one norm for all numbers alike; see `rule`."""

    @property
    def rule(self) -> Rule:
        """How the norm bounds an answer's numbers."""
        return "joint"

    @abstractmethod
    def added(self, part: Part, order: Order) -> float:
        """The norm of what one row, or one subject, adds at most."""

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Of a client to its clip, of a row or a subject to what it adds."""
        norm = clips[0] if self.takes(part, clips, 1) else self.added(part, order)
        return Bound(self.lengths(), (norm,), self.rule, order)


class Cell(Query):
    """A single 1 for one row of each client, for unary encoding; `bound` leaves it as it is.

    It is no sum over rows: one row may move the 1.
    """

    row_sums = False
    signed = False

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Room for the 1, which a norm of 1 would cut."""
        self.takes(part, clips, 0)
        return Bound(self.lengths(), (2.0,), order=order)


def questions(base: type[Query] = Query) -> list[type[Query]]:
    """The questions that are defined so far, those with a kind of their own, by their names."""
    found = {kind for below in base.__subclasses__() for kind in (below, *questions(below))}
    return sorted((q for q in found if "kind" in vars(q)), key=lambda q: q.__name__.lower())


def fits(bound: Bound, query: Query) -> bool:
    """Whether a bound's blocks are those of the answer, or parts of them."""
    ours, theirs = (set(np.cumsum(n).tolist()) for n in (query.lengths(), bound.lengths))
    return ours <= theirs and max(ours) == max(theirs)


# --- checks of parameters -------------------------------------------------------------------------


def finite(name: str, value: Any, most: float = math.inf) -> float:
    """`value` as a finite float of at most `most` in absolute value, or InputError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise InputError(f"{name} must be a finite number, got one above 1e308") from None
    if not math.isfinite(number) or abs(number) > most:
        raise InputError(f"{name} must be a finite number within +-{most:g}, got {number:g}")
    return number


def flag(name: str, value: Any) -> bool:
    """`value` if it is true or false, or InputError."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def vector(name: str, value: Any) -> Floats:
    """A copy of `value` that cannot be written, (size,) float64, finite; or InputError."""
    given = np.asarray(value)
    if given.dtype.kind not in "fi" or given.ndim != 1 or not 1 <= len(given) <= MOST_NUMBERS:
        raise InputError(f"{name} must be a vector of numbers, got {given.dtype} {given.shape}")
    copied = np.array(given, np.float64)
    if not np.isfinite(copied).all():
        raise InputError(f"{name} must be finite; number {np.isfinite(copied).argmin()} is not")
    copied.setflags(write=False)
    return copied


def number_of_classes(value: Any) -> int:
    """How many classes the model has, or InputError."""
    return whole("classes", value, 2, MOST_CLASSES)


def text(name: str, value: Any) -> str:
    """`value` if it is text, or InputError."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, got {value!r:.80}")
    return value


def not_too_long(query: Query) -> None:
    """InputError if an answer would have more numbers than any client can hold."""
    if sum(query.lengths()) > MOST_NUMBERS:
        raise InputError(f"the answer to {query.kind!r} has more than {MOST_NUMBERS:,} numbers")


# --- types of parameters, which say how they are checked ------------------------------------------

Check = Callable[[str, Any], Any]
"""What a parameter's name and value become; it raises InputError."""


def within(low: int, high: int | None = None) -> Check:
    """The check of a whole number from `low` to `high`, both included."""
    return lambda name, value: whole(name, value, low, high)


Classes = Annotated[int, lambda _, value: number_of_classes(value)]
Seed = Annotated[int, lambda _, value: check_seed(value)]
Numbers = Annotated[int, within(0, MOST_NUMBERS)]
Finite = Annotated[float, finite]
Positive = Annotated[float, positive]
Vector = Annotated[Floats, vector]


@cache
def _checks(kind: type[Query]) -> Mapping[str, Callable[[Any], Any]]:
    """The checks of a question's fields, in their order, by what their types say."""
    hints = get_type_hints(kind, include_extras=True)
    found = {f.name: _check_of(f.name, hints[f.name]) for f in fields(kind)}
    return {name: check for name, check in found.items() if check is not None}


def _check_of(name: str, hint: Any) -> Callable[[Any], Any] | None:
    """A check by an annotation, a truth value, or a choice of names; None = there is none."""
    kinds = get_args(hint)
    if NoneType in kinds:
        of = _check_of(name, kinds[0])
        return of and (lambda value: None if value is None else of(value))
    if get_origin(hint) is Annotated:
        return partial(kinds[1], name)
    if get_origin(hint) is Literal:
        return lambda value: one_of(name, value, kinds)
    plain: dict[Any, Callable[[Any], Any]] = {bool: partial(flag, name), str: partial(text, name)}
    return plain.get(hint)
