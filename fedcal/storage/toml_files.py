"""Files in TOML that somebody else may have written: read whole, or refused in one line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fedcal.core.checks import number_in, one_of
from fedcal.core.errors import InputError, located, system_errors

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
    if len(content) > most:
        raise InputError(f"{what} is larger than {most} bytes")
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


def read_as(path: Path, most: int, make: Callable[[Mapping[str, Any]], T]) -> T:
    """Return the object that `make` builds from a TOML file; its errors name the file.

    Raises InputError as `read_toml`, and as `make`.
    """
    table = read_toml(path, most)
    with located(str(path)):
        return make(table)


def check_keys(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    """InputError for a key that is not known, with the nearest one that is."""
    for key in table:
        one_of(f"key of {where}", key, known)
