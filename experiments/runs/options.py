"""Options as fields of a dataclass: said once what each is called, holds, means and is unset.

`Config` and `TrainConfig` are such dataclasses. Their command lines, files, the grid of `compare`,
the parameters of the estimator and the reference of the commands are made from the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
import tomli_w

from fedcal import __version__
from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.storage.toml_files import read_toml

DATA, PRIVACY, RUNNING = "Method, data and clients", "Privacy", "Running"
SITES = "Real sites (--engine grpc)"
"""Groups of options in `--help`."""


_VERSION = "version"

REQUIRED = "required"
"""What `unset` says of an option that must be given."""


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
        """`value` in the type that the field holds; InputError for another."""
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
    return field(default=default, metadata={"option": Option(group, help, **more)})


def like(table: type[Options], name: str, **changed: Any) -> Any:
    """Return a field that repeats another dataclass's option: same words, same default."""
    known = {f.name: f for f in fields(table)}[name]
    return field(default=changed.get("default", known.default), metadata=known.metadata)


@dataclass(frozen=True)
class Options:
    """A base of dataclasses of options; None stands for "what follows from the others"."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones; infinity stays a float."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    def to_toml(self) -> str:
        """Return the text of the file that `--config` reads, in this version of fedcal."""
        return tomli_w.dumps({_VERSION: __version__, **self.to_dict()})


def read_options(path: Path) -> dict[str, Any]:
    """Return the options in a TOML file; InputError if another version of fedcal wrote it."""
    table = read_toml(path)
    version = table.pop(_VERSION, __version__)
    if version != __version__:
        raise InputError(
            f"{path} was written by fedcal {str(version)[:20]!r}, and this is fedcal "
            f"{__version__}: a config repeats a run in its own version; to run these options with "
            f"this one, delete its line {_VERSION!r}"
        )
    return table


def options_of(table: type[Options]) -> dict[str, Option]:
    """Return the options of a dataclass by name, in its order."""
    hints = get_type_hints(table)

    def kind(name: str) -> Any:
        return next(t for t in (*get_args(hints[name]), hints[name]) if t is not NoneType)

    return {
        f.name: replace(f.metadata["option"], name=f.name, kind=kind(f.name), default=f.default)
        for f in fields(table)
        if "option" in f.metadata
    }


def layered(
    known: Mapping[str, Option],
    *layers: Mapping[str, Any],
    read: Callable[[Option, Any], Any] = Option.typed,
    tables: Collection[str] = (),
) -> dict[str, Any]:
    """Values by option from several layers, later ones winning.

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
    for layer in layers:
        for raw, value in layer.items():
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
