"""Frozen dataclasses whose fields are checked by their type, wherever they are made or read.

Options as fields of a dataclass: name, type, what is allowed, help and default, said once.

`Privacy`, `Running`, `Config` and `TrainConfig` are such dataclasses. Command lines, files, Python
signatures, the grid of `compare`, the estimator's parameters, Flower's run config and the reference
of the commands are made from the fields. An annotation says what is allowed: `Annotated[T, check]`,
where `check(name, value)` returns the value or raises InputError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from fedcal import __version__
from fedcal.core import checks
from fedcal.core.checks import InputError, finite, integer, interval, of_kind, one_of, positive
from fedcal.core.numerics import Floats, check_seed

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
        for of in fields(self):
            value = getattr(self, of.name)
            if of.name in self.facts or value is None:
                continue
            if isinstance(value, (np.ndarray, tuple)):
                params[of.name] = np.asarray(value)
            elif value != of.default or (
                self.optional is not None and of.name not in self.optional
            ):
                params[of.name] = value
        return params

    @classmethod
    def read(cls, params: Mapping[str, Any], facts: Mapping[str, Any]) -> Self:
        """Return the object with parameters and facts from a message or a file.

        Raises InputError if one is missing, unknown or not allowed.
        """
        known = {name: facts[name] for name in cls.facts if name in facts}
        own = {f.name: f.default for f in fields(cls)}
        lacks = [f"parameter {n!r}" for n in params if n not in own or n in cls.facts]
        there = {**params, **known}
        lacks += [f"value of {n!r}" for n in own if own[n] is MISSING and n not in there]
        if lacks:
            raise InputError(f"the query {cls.kind!r} has no {lacks[0]}")
        try:
            return cls(**params, **known)
        except (TypeError, ValueError, OverflowError) as error:
            problem = f"a parameter of the query {cls.kind!r} has a value of the wrong type"
            if isinstance(error, InputError):  # a long value may have been printed in many lines
                problem = " ".join(str(error).split())[:MOST_TEXT]
            raise InputError(problem) from None

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


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is true or false, also NumPy's; InputError otherwise."""
    return of_kind(name, bool(value) if isinstance(value, np.bool_) else value, bool)


text = partial(of_kind, kind=str)
"""The check that something is a text."""


def vector(name: str, value: Any) -> Floats:
    """Return a read-only copy of `value`, (size,) float64, finite; InputError otherwise."""
    given = np.asarray(value)
    fits = given.dtype.kind in "fi" and given.ndim == 1 and 1 <= len(given) <= MOST_NUMBERS
    copied = np.array(given if fits else [np.nan], np.float64)
    if not np.isfinite(copied).all():
        raise InputError(
            f"{name} must be a vector of finite numbers, got {given.dtype} {given.shape}"
        )
    copied.setflags(write=False)
    return copied


def array(
    name: str,
    value: Any,
    shape: tuple[int | None, ...],
    low: float = -math.inf,
    high: float = math.inf,
) -> Floats:
    """Return a read-only copy of finite numbers in [low, high], float64; InputError otherwise.

    They may be from a file. In `shape` None stands for any size, but no numbers are not enough.
    """
    copied = np.array(value, np.float64, order="C")
    fits = copied.ndim == len(shape) and copied.size > 0
    fits = fits and all(n in (None, own) for n, own in zip(shape, copied.shape, strict=True))
    if not fits or not (np.isfinite(copied) & (copied >= low) & (copied <= high)).all():
        sizes = ", ".join("n" if n is None else str(n) for n in shape)
        inside = f"within [{low:g}, {high:g}] " if math.isfinite(high - low) else ""
        raise InputError(
            f"{name} must be finite numbers {inside}of shape ({sizes}), got {copied.shape}"
        )
    copied.setflags(write=False)
    return copied


def increasing(name: str, values: Floats, ends: str = "from 0 to 1") -> None:
    """Refuse numbers, (n,), that do not increase within [0, 1], with `ends` of these words.

    Others than "from 0 to 1" are "up to 1" and "within [0, 1]".
    """
    first, last = ends == "from 0 to 1", ends != "within [0, 1]"
    inside = values[0] >= 0 and values[-1] <= 1 and (np.diff(values) > 0).all()
    if not inside or (first and values[0] != 0) or (last and values[-1] != 1):
        raise InputError(f"{name} must increase {ends}")


# --- types of fields, which define their checks ---------------------------------------------------

Check = Callable[[str, Any], Any]
"""Function from a parameter's name and value to its checked value, or InputError."""


def within(low: int, high: int | None = None) -> Check:
    """Return a check for an integer from `low` to `high`, both included."""
    return lambda name, value: integer(name, value, low, high)


def among(names: Collection[str], listed: str = "") -> Check:
    """Return a check for one of some names; `listed` is a command that lists them."""
    return lambda name, value: one_of(name.replace("_", " "), value, names, listed)


def shaped(form: re.Pattern[str], allowed: str = "") -> Check:
    """Return a check for a text of a form; see `like`."""
    return lambda name, value: checks.like(name, value, form, allowed)


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


def strict(value: Any) -> Any:
    """Return a value as strict JSON has it: infinite numbers are texts that `float` reads."""
    if isinstance(value, Mapping):
        return {key: strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [strict(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


DATA, TRAINING, PRIVACY = "Method, data and clients", "Training", "Privacy"
RUNNING, SITES = "Running", "Real sites (--engine grpc)"
GROUPS = (DATA, TRAINING, PRIVACY, RUNNING, SITES)
"""Groups of options in `--help`."""

MOST_USED = (
    *("data", "model", "method", "clients", "partition", "rounds", "sampling_rate", "set"),
    *("epsilon", "delta", "unit", "trust", "engine", "seed"),
)
"""Options that `--help` shows first; others, but for those of training, are in `--help-all`."""

VERSION = "version"
"""Key of a file of options: the version of fedcal that wrote it."""

REQUIRED = "required"
"""Value of `unset` for an option that must be given."""

Call = TypeVar("Call", bound=Callable[..., Any])
_once: Callable[[Call], Call] = cache  # type: ignore[assignment]  # a class is hashable


@dataclass(frozen=True)
class Option:
    """Description of an option for people, and the way its values are read.

    Attributes
    ----------
    group : str
        Heading in `--help`.
    help : str
        One line.
    unset : str
        What stands in for it where it is not given; "" = its default.
    axis : bool
        Whether `compare` takes a list.
    read : callable
        Makes a value of what a user gave, before its check: it may import what is named.
    name, kind, default : str, type, object
        Of the field.
    check : callable
        Returns a given value as the field holds it, or raises InputError: by the annotation.
    """

    group: str
    help: str
    unset: str = ""
    axis: bool = False
    read: Callable[[Any], Any] = lambda value: value
    name: str = ""
    kind: type = str
    default: Any = None
    check: Callable[[Any], Any] | None = None

    def checked(self, value: Any) -> Any:
        """Return a given value, a path as text, as the field holds it, or raise InputError."""
        if self.axis and isinstance(value, (list, tuple)):
            raise InputError(f"{self.name} is one value; lists are for fedcal compare")
        value = self.read(str(value) if isinstance(value, Path) else value)
        return self.check(value) if self.check else value


def option(default: Any, group: str, help: str, **more: Any) -> Any:
    """Return a field of a dataclass of options (`Option`), typed Any as by `dataclasses.field`.

    The default may be a function that makes it.
    """
    known: Any = {"default_factory" if callable(default) else "default": default}
    return field(**known, kw_only=True, metadata={"option": Option(group, help, **more)})


def like(table: type[Options], name: str, default: Any, help: str = "", **more: Any) -> Any:
    """Return a field that repeats an inherited option with another default, or other words."""
    own = next(f.metadata["option"] for f in fields(table) if f.name == name)
    changed = replace(own, help=help or own.help, **more)
    return field(default=default, kw_only=True, metadata={"option": changed})


@dataclass(frozen=True)
class Options:
    """A base of dataclasses of options; None stands for "what follows from the others"."""

    def __post_init__(self) -> None:
        set_checked(self)

    def part(self, table: type[Any]) -> dict[str, Any]:
        """Return the values of the options that another dataclass has, too."""
        return {f.name: getattr(self, f.name) for f in fields(table)}

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones, tables last; infinity stays a float."""
        values = asdict(self)
        names = sorted(
            options_of(type(self)) | values, key=lambda n: isinstance(values[n], Mapping)
        )
        return {name: values[name] for name in names if values[name] is not None}

    def to_toml(self) -> str:
        """Return the text of the file that `--config` reads, in this version of fedcal."""
        import tomli_w  # slow

        return tomli_w.dumps({VERSION: __version__, **self.to_dict()})

    def to_fields(self) -> dict[str, bool | int | float | str]:
        """Flat values under Flower's dashed names; what is None becomes 0 or ""."""
        return {
            name.replace("_", "-"): kind(getattr(self, name) or kind())
            for name, kind in flat_kinds(type(self)).items()
        }


@_once
def flat_kinds(table: Any) -> dict[str, type[Any]]:
    """Return the type of each field that a run config can hold."""
    kinds = {f.name: _kind(_hints(table)[f.name]) for f in fields(table)}
    return {name: kind for name, kind in kinds.items() if kind in (bool, int, float, str)}


@_once
def options_of(table: Any) -> dict[str, Option]:
    """Return the options of a dataclass by name, by group, the most used first."""
    known = list[Option]()
    for f in fields(table):
        if "option" in f.metadata:
            hint = _hints(table)[f.name]
            facts: Any = {"name": f.name, "kind": _kind(hint), "default": f.default}
            known.append(replace(f.metadata["option"], **facts, check=check_of(f.name, hint)))
    usual = (*MOST_USED, *(one.name for one in known))
    known.sort(key=lambda one: (GROUPS.index(one.group), usual.index(one.name)))
    return {one.name: one for one in known}


@_once
def _hints(table: Any) -> dict[str, Any]:
    """Return the annotations of a dataclass's fields, of what may be None without that."""
    hints = get_type_hints(table, include_extras=True)
    return {n: get_args(h)[0] if NoneType in get_args(h) else h for n, h in hints.items()}


def _kind(hint: Any) -> Any:
    """Return the type that an annotation is of; a choice is of texts."""
    return str if get_origin(hint) is Literal else getattr(hint, "__origin__", hint)
