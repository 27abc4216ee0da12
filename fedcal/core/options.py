"""Options as fields of a dataclass: name, type, what is allowed, help and default, said once.

`Privacy`, `Running`, `Config` and `TrainConfig` are such dataclasses. Command lines, files, Python
signatures, the grid of `compare`, the estimator's parameters, Flower's run config and the reference
of the commands are made from the fields. An annotation says what is allowed: `Annotated[T, check]`,
where `check(name, value)` returns the value or raises InputError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from fedcal import __version__
from fedcal.core.checks import InputError, read
from fedcal.core.fields import check_of, set_checked

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
"""What `unset` says of an option that must be given."""

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

    def described(self, unset: str | None = None) -> str:
        """Return the help with the default."""
        shown = f"{self.default:g}" if isinstance(self.default, float) else str(self.default)
        without = unset or self.unset or ("" if self.default in (None, MISSING) else shown)
        if without and without != REQUIRED:
            without = f"default: {without}"
        return f"{self.help} ({without})." if without else f"{self.help}."

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


def read_fields(table: type[Options], values: Mapping[str, Any], **instead: Any) -> dict[str, Any]:
    """Return the arguments of a dataclass from what `to_fields` wrote; other keys are ignored.

    Raises InputError if a key is missing or its value is of another type.

    Parameters
    ----------
    **instead
        what 0 and "" stand for, where it is not None
    """
    known: dict[str, Any] = {}
    unset = {f.name: None for f in fields(table) if f.default is None} | instead
    for name, kind in flat_kinds(table).items():
        value = read(values, name.replace("_", "-"), kind)
        known[name] = value or unset.get(name, value)
    return known


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
