"""Frozen dataclasses whose fields are checked by their type, wherever they are made or read."""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

from fedcal.core.checks import interval, like, one_of, positive, real, whole
from fedcal.core.errors import InputError
from fedcal.core.streams import check_seed
from fedcal.core.types import Floats

Scalar = bool | int | float | str
Param = Scalar | Floats
"""A field: a scalar, or a vector of numbers (size,) float64."""

MOST_NUMBERS = 2**27
"""Maximum length of a vector: more does not fit into a client's memory (1 GiB)."""

MOST_CLASSES = 10**6
MOST_TEXT = 300
"""Characters of a received value that are quoted in a message."""


@dataclass(frozen=True, eq=False)
class CheckedFields:
    """Frozen dataclass whose fields are checked by their type (see the end of this module).

    Conditions on several fields are checked by a subclass in `__post_init__`. Equality is defined
    here, so subclasses with arrays are dataclasses with `eq=False`.

    Attributes
    ----------
    kind
        name in messages and files
    optional
        fields that are written only if they differ from the default; None = all with a default
    facts
        fields that are public facts, such as `classes`: they are written apart
    """

    kind: ClassVar[str]
    optional: ClassVar[tuple[str, ...] | None] = None
    facts: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        set_checked(self)

    def params(self) -> Mapping[str, Param]:
        """Return the fields to write, without the facts."""
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

    @classmethod
    def read(cls, params: Mapping[str, Any], facts: Mapping[str, Any]) -> Self:
        """Return the object with parameters and facts from a message or a file.

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


# --- checks of single values ----------------------------------------------------------------------


def finite(name: str, value: Any, most: float = math.inf) -> float:
    """Return `value` as a finite float of at most `most` in absolute value, or raise InputError."""
    number = real(name, value)
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


def text(name: str, value: Any) -> str:
    """Return `value` if it is text, or raise InputError."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, got {value!r:.80}")
    return value


# --- types of fields, which define their checks ---------------------------------------------------

Check = Callable[[str, Any], Any]
"""Function from a parameter's name and value to its checked value, or InputError."""


def within(low: int, high: int | None = None) -> Check:
    """Return a check for an integer from `low` to `high`, both included."""
    return lambda name, value: whole(name, value, low, high)


def among(names: Collection[str], listed: str = "") -> Check:
    """Return a check for one of some names; `listed` is a command that lists them."""
    return lambda name, value: one_of(name.replace("_", " "), value, names, listed)


def shaped(form: re.Pattern[str], allowed: str = "") -> Check:
    """Return a check for a text of a form; see `like`."""
    return lambda name, value: like(name, value, form, allowed)


def set_checked(made: Any) -> None:
    """Replace each field of a frozen dataclass by its checked value; InputError if it has none."""
    kind: Any = type(made)
    for name, check in checks_of(kind).items():
        object.__setattr__(made, name, check(getattr(made, name)))


Classes = Annotated[int, within(2, MOST_CLASSES)]
Seed = Annotated[int, lambda _, value: check_seed(value)]
Count = Annotated[int, within(1)]
Numbers = Annotated[int, within(0, MOST_NUMBERS)]
Finite = Annotated[float, finite]
Positive = Annotated[float, positive]
NotNegative = Annotated[float, interval("[0, inf)")]
Vector = Annotated[Floats, vector]


@cache
def checks_of(kind: Any) -> Mapping[str, Callable[[Any], Any]]:
    """Return the checks of a class's fields, in their order, from their type hints."""
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
        return partial(among(kinds), name)
    plain: dict[Any, Callable[[Any], Any]] = {bool: partial(flag, name), str: partial(text, name)}
    return plain.get(hint)
