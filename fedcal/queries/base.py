"""Base class of questions: typed parameters, the shape of the answer, and its public bound.

A question is checked where it is made, on the server, and where it is read, on the client: a
client's computation never depends on a number that no server of this version would send.
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
"""Unit whose contribution is bounded: a complete client, or one subject or one row of a client."""

Order = Literal[1, 2]

MOST_NUMBERS = 2**27
"""Maximum length of one client's answer: more does not fit into a client's memory (1 GiB)."""

MOST_CLASSES = 10**6
MOST_TEXT = 300
"""Characters of a received value that are quoted in a message."""


@dataclass(frozen=True, eq=False)
class Query(ABC):
    """Question to the clients, whose fields are the parameters of a statistic.

    A subclass is a frozen dataclass (with `eq=False` where a field is an array: equality is defined
    here). Each field is checked by its type (see the end of this module); conditions on several
    fields are checked by a subclass in `__post_init__`.

    Attributes
    ----------
    kind
        name on the wire, and of the clients' statistic
    version
        of the parameters' meaning; a client refuses any but its own
    row_sums
        whether a client's answer is a sum of contributions of its rows, so that the contribution of
        a row, or of a subject, may be clipped by itself
    signed
        whether a number of an answer may be negative
    everyone
        ask all enrolled clients, not this round's sample (no privacy only)
    asked_once
        each client answers in one round of a run only: rounds are for disjoint parts of the clients
    fine
        an answer sums many rows: its grid is as fine as the rows leave capacity for (`Plan.fine`)
    by_site
        an answer depends on the number of the client's site, such as the order of its rows
    cuts
        fields that define the cells rows are counted in: a server that chooses these in the run
        chooses how few rows a count is of
    optional
        parameters that are sent only if they differ from the default; None = all with a default
    facts
        fields that are not parameters of the statistic, but of the bound and the lengths: public
        facts such as `classes`. They are sent beside the question, and are in no noise key
    learned
        parameters computed from earlier answers whose digits depend on the processor (of clients'
        own fits, of differences near 0). They are in no noise key, because one digit would change
        the round's noise. Two runs with the same seed and plan whose questions differ only in these
        share the round's noise, as they share the first round's noise for any rows: seeds are for
        simulation, and sites draw from the operating system
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
        """Return an example for another number of classes, or None if a vector has a fixed size.

        A question whose vectors depend on the classes defines their length in `resized`.
        """
        arguments = dict(cls.examples[number])
        vectors = any(np.ndim(value) for value in cls(**arguments).params().values())
        arguments |= {name: classes for name in cls.facts if name == "classes"}
        resized = cls.resized(arguments, classes)
        return None if vectors and resized is None else cls(**{**arguments, **(resized or {})})

    @classmethod
    def resized(cls, example: Mapping[str, Any], classes: int) -> Mapping[str, Any] | None:
        """Return the vector arguments of an example for a number of classes; None = no rule."""
        return None

    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """Return the numbers in each block of an answer."""

    def params(self) -> Mapping[str, Param]:
        """Return the fields to send; all but `learned` are in the key of seeded noise."""
        params: dict[str, Param] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in self.facts or value is None:
                continue
            if isinstance(value, (np.ndarray, tuple)):
                params[field.name] = np.asarray(value)
            elif value != field.default or (
                self.optional is not None and field.name not in self.optional
            ):
                params[field.name] = value
        return params

    @abstractmethod
    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound on the contribution of a client, or of a part of it, to the answer.

        Parameters
        ----------
        part
            "client": bounded by `clips`; "subject", "row": bounded by the question alone
        clips
            the method's own public clip values, in the units of the answer
        order
            norm that is bounded, 1 or 2

        Raises
        ------
        InputError
            If the answer is not a sum over rows, or the number of clips is wrong.
        """

    def whole(self, part: Part) -> bool:
        """Return whether each such part adds integers alone, of an L1 norm that is one, too.

        Such counts have their Laplace noise on the integers. `bound` says so by `Bound.whole`.
        """
        return False

    @property
    def key(self) -> str:
        """Text that identifies the question."""
        return key_of(self.kind, self.params())

    @property
    def noise_key(self) -> str:
        """Text `key` without the `learned` parameters: part of the key of seeded noise."""
        return key_of(self.kind, {k: v for k, v in self.params().items() if k not in self.learned})

    @property
    def reads(self) -> tuple[int, ...] | None:
        """Shape of one input of the question's network; None = the question is about scores."""
        return None

    def costs(self, sums: Floats) -> Floats | None:
        """Return the cost of each candidate of a draw from exact sums; None = by absolute values.

        `sums` and the costs are (length,), (candidates,). The changes of two candidates' costs by
        one neighbour must differ by at most two norms of the bound.
        """
        return None

    @classmethod
    def part(cls, unit: str) -> Part:
        """Return the part of a client that is clipped by itself if `unit` is protected."""
        return UNITS[unit].per if cls.row_sums else "client"

    @classmethod
    def read(cls, params: Mapping[str, Any], facts: Mapping[str, Any]) -> Self:
        """Return the question with parameters and facts from a message.

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
                f"a parameter of the query {cls.kind!r} has a value of the wrong type"
            ) from None

    def takes_clips(self, part: Part, clips: Sequence[float], number: int) -> bool:
        """Return whether a bound is for a complete client, by `number` clips.

        Raises InputError if the number of clips differs, or the answer is not a sum over rows.
        """
        one_of("part", part, get_args(Part))
        if part == "client":
            if len(clips) != number:
                raise InputError(f"the query {self.kind!r} needs {number} clips, got {len(clips)}")
            return True
        if not self.row_sums:
            raise InputError(
                f"the answer to {self.kind!r} is not a sum over rows, so a {part} has no part of it"
            )
        return False

    def __eq__(self, right: object) -> bool:
        return type(right) is type(self) and self._values() == right._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values()))

    def _values(self) -> tuple[Any, ...]:
        values = (getattr(self, f.name) for f in fields(self))
        return tuple(v.tobytes() if isinstance(v, np.ndarray) else v for v in values)

    def _set(self, **values: Any) -> None:
        """Replace fields by their checked values."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


class Summed(Query):
    """Question whose bound is one norm for all numbers equally; see `rule`."""

    @property
    def rule(self) -> Rule:
        """Rule by which the norm bounds an answer's numbers."""
        return "joint"

    @abstractmethod
    def added(self, part: Part, order: Order) -> float:
        """Return the largest norm of the contribution of one row, or of one subject."""

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound: the clip for a client, `added` for a row or a subject."""
        if self.takes_clips(part, clips, 1):
            return Bound(self.lengths(), (clips[0],), self.rule, order)
        norm = self.added(part, order)
        if order == 1 and self.whole(part):
            return Bound(self.lengths(), (norm,), self.rule, order, part, whole=True)
        return Bound(self.lengths(), (self.unclipped(norm),), self.rule, order)

    def unclipped(self, norm: float) -> float:
        """Return a bound for what has this norm; a bit more, where the clip should cut nothing."""
        return norm


class Cell(Query):
    """Question for a single 1, from one row of each client, for unary encoding.

    The answer is not a sum over rows, because one row may move the 1. `bound` does not clip it.
    """

    row_sums = False
    signed = False

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return a bound with capacity for the 1, which a norm of 1 would clip."""
        self.takes_clips(part, clips, 0)
        return Bound(self.lengths(), (2.0,), order=order)


def questions(base: type[Query] = Query) -> list[type[Query]]:
    """Return the classes of questions defined so far that have their own kind, sorted by name."""
    kinds = {kind for below in base.__subclasses__() for kind in (below, *questions(below))}
    return sorted((q for q in kinds if "kind" in vars(q)), key=lambda q: q.__name__.lower())


def fits(bound: Bound, query: Query) -> bool:
    """Return whether a bound's blocks are the blocks of the answer, or parts of them."""
    ours, theirs = (set(np.cumsum(n).tolist()) for n in (query.lengths(), bound.lengths))
    return ours <= theirs and max(ours) == max(theirs)


# --- checks of parameters -------------------------------------------------------------------------


def finite(name: str, value: Any, most: float = math.inf) -> float:
    """Return `value` as a finite float of at most `most` in absolute value, or raise InputError."""
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
    """Return `value` if it is true or false, or raise InputError."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def vector(name: str, value: Any) -> Floats:
    """Return a read-only copy of `value`, (size,) float64, finite; or raise InputError."""
    array = np.asarray(value)
    if array.dtype.kind not in "fi" or array.ndim != 1 or not 1 <= len(array) <= MOST_NUMBERS:
        raise InputError(f"{name} must be a vector of numbers, got {array.dtype} {array.shape}")
    copied = np.array(array, np.float64)
    if not np.isfinite(copied).all():
        raise InputError(f"{name} must be finite; number {np.isfinite(copied).argmin()} is not")
    copied.setflags(write=False)
    return copied


def number_of_classes(value: Any) -> int:
    """Return the number of classes, or raise InputError."""
    return whole("classes", value, 2, MOST_CLASSES)


def text(name: str, value: Any) -> str:
    """Return `value` if it is text, or raise InputError."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, got {value!r:.80}")
    return value


def not_too_long(query: Query) -> None:
    """Raise InputError if an answer would have more numbers than any client can hold."""
    if sum(query.lengths()) > MOST_NUMBERS:
        raise InputError(f"the answer to {query.kind!r} has more than {MOST_NUMBERS:,} numbers")


# --- types of parameters, which define their checks -----------------------------------------------

Check = Callable[[str, Any], Any]
"""Function from a parameter's name and value to its checked value, or InputError."""


def within(low: int, high: int | None = None) -> Check:
    """Return a check for an integer from `low` to `high`, both included."""
    return lambda name, value: whole(name, value, low, high)


Classes = Annotated[int, lambda _, value: number_of_classes(value)]
Seed = Annotated[int, lambda _, value: check_seed(value)]
Numbers = Annotated[int, within(0, MOST_NUMBERS)]
Finite = Annotated[float, finite]
Positive = Annotated[float, positive]
Vector = Annotated[Floats, vector]


@cache
def _checks(kind: type[Query]) -> Mapping[str, Callable[[Any], Any]]:
    """Return the checks of a question's fields, in their order, from their type hints."""
    hints = get_type_hints(kind, include_extras=True)
    checks = {f.name: check_of(f.name, hints[f.name]) for f in fields(kind)}
    return {name: check for name, check in checks.items() if check is not None}


def check_of(name: str, hint: Any) -> Callable[[Any], Any] | None:
    """Return the check of an annotation, a bool, a text or a choice of names; None = no check."""
    kinds = get_args(hint)
    if NoneType in kinds:
        of = check_of(name, kinds[0])
        return of and (lambda value: None if value is None else of(value))
    if get_origin(hint) is Annotated:
        return partial(kinds[1], name)
    if get_origin(hint) is Literal:
        return lambda value: one_of(name, value, kinds)
    plain: dict[Any, Callable[[Any], Any]] = {bool: partial(flag, name), str: partial(text, name)}
    return plain.get(hint)
