"""Options as fields of a dataclass: name, type, what is allowed, help and default, said once.

`Privacy`, `Running`, `Config` and `TrainConfig` are such dataclasses. Command lines, files, Python
signatures, the grid of `compare`, the estimator's parameters, Flower's run config and the reference
of the commands are made from the fields. An annotation says what is allowed: `Annotated[T, check]`,
where `check(name, value)` returns the value or raises InputError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from fedcal import __version__
from fedcal.core.checks import one_of, read
from fedcal.core.errors import InputError
from fedcal.core.fields import set_checked

DATA, TRAINING, PRIVACY = "Method, data and clients", "Training", "Privacy"
RUNNING, SITES = "Running", "Real sites (--engine grpc)"
GROUPS = (DATA, TRAINING, PRIVACY, RUNNING, SITES)
"""Groups of options in `--help`."""

MOST_USED = (
    *("data", "model", "method", "clients", "partition", "rounds", "sampling_rate"),
    *("epsilon", "delta", "unit", "trust", "engine", "seed"),
)
"""Options that `--help` shows first; others, but for those of training, are in `--help-all`."""

VERSION = "version"
"""Key of a file of options: the version of fedcal that wrote it."""

REQUIRED = "required"
"""What `unset` says of an option that must be given."""

Call = TypeVar("Call", bound=Callable[..., Any])
Table = TypeVar("Table", bound="Options")


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
    elsewhere : str
        Why `compare` does not take it; "" = it does.
    read : callable
        Makes a value of what was given, of the right type already.
    name, kind, default : str, type, object
        Of the field.
    """

    group: str
    help: str
    unset: str = ""
    axis: bool = False
    elsewhere: str = ""
    read: Callable[[Any], Any] = lambda value: value
    name: str = ""
    kind: type = str
    default: Any = None

    def described(self, unset: str | None = None) -> str:
        """Return the help with the default."""
        shown = f"{self.default:g}" if isinstance(self.default, float) else str(self.default)
        without = unset or self.unset or ("" if self.default in (None, MISSING) else shown)
        if without and without != REQUIRED:
            without = f"default: {without}"
        return f"{self.help} ({without})." if without else f"{self.help}."

    def typed(self, value: Any) -> Any:
        """Return `value` in the type that the field holds, or raise InputError."""
        if isinstance(value, Path):
            value = str(value)
        if self.kind is str and not isinstance(value, str):
            value = self.read(value)  # a class or an object stands for its name, where it has one
        if isinstance(value, np.generic):
            value = value.item()
        if self.kind is str and not isinstance(value, str):
            hint = "; lists are for fedcal compare" if self.axis and isinstance(value, list) else ""
            raise InputError(f"option {self.name!r} must be text, got {value!r}{hint}")
        if self.kind is float:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(f"option {self.name!r} must be a number, got {value!r}")
            value = float(value)
        return self.read(value)


def option(default: Any, group: str, help: str, **more: Any) -> Any:
    """Return a field of a dataclass of options (`Option`), typed Any as by `dataclasses.field`."""
    return field(default=default, kw_only=True, metadata={"option": Option(group, help, **more)})


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

    def part(self, table: type[Table]) -> dict[str, Any]:
        """Return the values of the options that another dataclass has, too."""
        return {f.name: getattr(self, f.name) for f in fields(table)}

    def changed(self, *names: str) -> dict[str, Any]:
        """Return the values of some options, or None where it is the default."""
        given = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        return {n: None if given[n][0] == given[n][1] else given[n][0] for n in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones; infinity stays a float."""
        known, values = options_of(type(self)), asdict(self)
        ordered = (*known, *(name for name in values if name not in known))
        return {name: values[name] for name in ordered if values[name] is not None}

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


def flat_kinds(table: Any) -> dict[str, type[Any]]:
    """Return the type of each field that a run config can hold."""
    kinds: dict[str, Any] = _kinds(table)
    return {n: kinds[n] for n in kinds if kinds[n] in (bool, int, float, str)}


@cache
def _kinds(table: Any) -> dict[str, Any]:
    hints, kinds = get_type_hints(table), {}
    for f in fields(table):
        hint = hints[f.name]
        if get_origin(hint) in (Union, UnionType):
            hint = get_args(hint)[0]
        kinds[f.name] = str if get_origin(hint) is Literal else hint
    return kinds


def options_of(table: Any) -> dict[str, Option]:
    """Return the options of a dataclass by name, by group, the most used first."""
    return _options_of(table)


@cache
def _options_of(table: Any) -> dict[str, Option]:
    kinds = _kinds(table)
    known = {
        f.name: replace(f.metadata["option"], name=f.name, kind=kinds[f.name], default=f.default)
        for f in fields(table)
        if "option" in f.metadata
    }
    usual = {name: place for place, name in enumerate(MOST_USED)}
    places = {n: (GROUPS.index(known[n].group), usual.get(n, len(usual))) for n in known}
    return {name: known[name] for name in sorted(known, key=lambda name: places[name])}


def layered(
    known: Mapping[str, Option],
    *layers: Mapping[str, Any],
    read: Callable[[Option, Any], Any] = Option.typed,
    tables: Collection[str] = ("set",),
) -> dict[str, Any]:
    """Return values by option from several layers, later ones winning.

    Raises InputError if an option is unknown, or `read` refuses its value.

    Parameters
    ----------
    known : mapping of str to Option
        By name; a layer may write names with dashes.
    *layers : mapping
        Of what was given; None is nothing.
    read : callable
        The value of an option from what was given.
    tables : collection of str
        Further names, of tables; those of several layers are joined.
    """
    values: dict[str, Any] = {}
    for raw, value in (item for layer in layers for item in layer.items()):
        key = raw.replace("-", "_")
        if key not in known and key not in tables:
            one_of("option", raw, (*known, *tables), "--help")
        if value is None:
            continue
        if key in known:
            values[key] = read(known[key], value)
        elif isinstance(value, Mapping):
            plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in value.items()}
            values[key] = {**values.get(key, {}), **plain}
        else:
            raise InputError(f"option {key!r} must be a table of key = value")
    return values


def takes_options(
    table: type[Options], *without: str, also: Callable[..., Any] | None = None
) -> Callable[[Call], Call]:
    """Let `inspect`, and so editors and notebooks, see a function's `**options` as keywords.

    Parameters
    ----------
    table : type
        The dataclass of the options.
    *without : str
        Options that the function does not take.
    also : callable
        Function to which `**options` are passed on: it takes that one's keywords, too.
    """

    def spelt(call: Call) -> Call:
        signature, hints = inspect.signature(call), get_type_hints(table)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        taken = {*without, *signature.parameters}
        if also is not None:
            passed = inspect.signature(also).parameters.values()
            own += [p for p in passed if p.kind is p.KEYWORD_ONLY and p.name not in taken]
            taken |= {p.name for p in own}
        made = [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=f.default if f.default_factory is MISSING else f.default_factory(),
                annotation=hints[f.name],
            )
            for f in fields(table)
            if f.name not in taken
        ]
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]  # a function has it
            parameters=[*own, *made]
        )
        return call

    return spelt
