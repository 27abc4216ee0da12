"""Files in TOML that somebody else may have written: read whole, or refused in one line."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError

T = TypeVar("T")


def read_toml(path: Path, most: int) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises InputError if it is not a file, is too large, or is not TOML.

    Parameters
    ----------
    path
        of the file
    most
        bytes
    """
    try:
        if not path.is_file():  # a pipe would never end
            raise InputError(f"{path} does not exist, or is not a file")
        with path.open("rb") as file:
            text = file.read(most + 1)
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror}") from None
    if len(text) > most:
        raise InputError(f"{path} is larger than {most} bytes")
    try:
        return tomllib.loads(text.decode())
    except RecursionError:
        raise InputError(f"{path} is not TOML that can be read: it is nested too deeply") from None
    except ValueError as e:  # of the syntax, of UTF-8, and of numbers with too many digits
        raise InputError(f"{path} is not TOML: {' '.join(str(e).split())[:200]}") from None


def read_as(path: Path, most: int, make: Callable[[Mapping[str, Any]], T]) -> T:
    """Return the object that `make` builds from a TOML file; its errors name the file.

    Raises InputError as `read_toml`, and as `make`.
    """
    table = read_toml(path, most)
    try:
        return make(table)
    except InputError as e:
        raise InputError(f"{path}: {e}") from None


def check_keys(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    """InputError for a key that is not known, with the nearest one that is."""
    for key in table:
        one_of(f"key of {where}", key, known)
