"""Plain values of a run config, read by their dashed names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fedcal.core.errors import InputError

T = TypeVar("T", str, int, float, bool)
_CALLED = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def read(fields: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return the value of this kind, or raise InputError; a float may be a whole number."""
    if key not in fields:
        raise InputError(f"the run config has no key {key!r}")
    value = fields[key]
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (kind is not bool and isinstance(value, bool)):
        raise InputError(f"{key!r} of the run config must be {_CALLED[kind]}, got {value!r}")
    return kind(value)
