"""Plain values of a run config, read by their dashed names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.errors import InputError


def text(fields: Mapping[str, Any], key: str) -> str:
    """A text, or InputError."""
    return str(_field(fields, key, "text", str))


def whole(fields: Mapping[str, Any], key: str) -> int:
    """A whole number, or InputError."""
    return int(_field(fields, key, "a whole number", int))


def real(fields: Mapping[str, Any], key: str) -> float:
    """A number, or InputError."""
    return float(_field(fields, key, "a number", (int, float)))


def _field(fields: Mapping[str, Any], key: str, what: str, kind: type | tuple[type, ...]) -> Any:
    if key not in fields:
        raise InputError(f"the run config has no key {key!r}")
    value = fields[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{key!r} of the run config must be {what}, got {value!r}")
    return value
