"""Files in TOML that somebody else may have written: read whole, or refused in one line."""

import re
import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fedcal.core.checks import CALLED, InputError, integer, number_in, one_of, system_errors

T = TypeVar("T")

MOST_BYTES = 1 << 20
"""Bytes of a file, unless a reader allows more."""

_STRINGS = re.compile(
    r'"""(?:\\.|(?!""").)*+"{0,5}|"(?:\\.|[^"\\])*+"?|#[^\n]*+'
    r"|'''(?:(?!''').)*+'{0,5}|'[^']*+'?",
    re.DOTALL,
)
"""Strings and comments, whole or cut off; each of them is read once."""

_DEEP = re.compile(r"(?:\.[^.=\n\[\]{},]*+){16}")  # points in one key, or one value


def read_toml(path: Path, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises InputError if it is not a file, is too large, or is not TOML.

    Parameters
    ----------
    path
        of the file
    most
        bytes
    """
    with system_errors(f"{path} cannot be read"):
        if not path.is_file():  # a pipe would never end
            raise InputError(f"{path} does not exist, or is not a file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    return parse_toml(content, str(path), most)


def parse_toml(content: bytes, what: str, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the tables of a text in TOML.

    Raises InputError, with the name `what`, if it is none, of more than `most` bytes, or nested too
    deeply: the time for a dotted key grows with the square of its parts.
    """
    integer(f"the bytes of {what}", len(content), 0, most)
    try:
        text = content.decode()
        if _DEEP.search(_STRINGS.sub("''", text)):
            raise RecursionError
        return tomllib.loads(text)
    except (RecursionError, ValueError) as e:  # of the syntax, of UTF-8, and of too many digits
        problem = "nested too deeply" if isinstance(e, RecursionError) else str(e)
        raise InputError(f"{what} is not TOML: {' '.join(problem.split())[:200]}") from None


def toml_value(text: str) -> Any:
    """Return a single value as TOML has it (7, 0.5, true, a list), or the text itself.

    A number may be written as .5, and 0_1 is none.
    """
    plain = text.strip()
    with suppress(ValueError):
        value = parse_toml(f"v = {plain}".encode(), "the value")["v"]
        if "_" not in plain or not isinstance(value, (int, float)):
            return value
    with suppress(ValueError):
        return number_in(plain)
    return plain


def check_keys(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    """InputError for a key that is not known, with the nearest one that is."""
    for key in table:
        one_of(f"key of {where}", key, known)


def record_of(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Return a dataclass from a table, whose keys have a dash where the fields have underscores.

    A list becomes a tuple, a table a mapping or another dataclass, by the fields' annotations.
    Raises InputError for a key that is unknown or missing, and for a value of another type: a
    whole number is a number, and nothing else is what it is not.

    Parameters
    ----------
    where
        what the table is, in a message
    """
    own: Any = kind
    known = {field.name.replace("_", "-"): field for field in fields(own)}
    check_keys(where, table, known)
    for key, field in known.items():
        if key not in table and field.default is field.default_factory is MISSING:
            raise InputError(f"{key!r} of {where} is missing")
    hints = _hints(own)
    names = {key: known[key].name for key in table}
    return kind(**{names[key]: _typed(key, table[key], hints[names[key]]) for key in table})


_hints = cache(get_type_hints)


def _typed(name: str, value: Any, kind: Any) -> Any:
    plain, parts = get_origin(kind) or kind, get_args(kind)
    if plain is UnionType:
        if NoneType in parts and len(parts) == 2:
            return _typed(name, value, parts[0])
        for part in parts:
            with suppress(InputError):
                return _typed(name, value, part)
    elif is_dataclass(plain) and isinstance(value, dict):
        return record_of(kind, value, f"[{name}]")
    elif plain is tuple and isinstance(value, list):
        return tuple(_typed(f"{name} number {k}", one, parts[0]) for k, one in enumerate(value, 1))
    elif plain is Mapping and isinstance(value, dict):
        return {key: _typed(f"{name}.{key}", one, parts[1]) for key, one in value.items()}
    elif plain is float and type(value) is int:
        return float(value)
    elif type(value) is plain:  # true is not a number, and a time not a day
        return value
    what = "a value" if plain is UnionType else CALLED.get(plain, "a table")
    raise InputError(f"{name} must be {what}, got {value!r:.80}")
