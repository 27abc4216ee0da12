"""What a setting of a method may be: from one number to another, or one of a list."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from fedcal.core.errors import InputError

Value: TypeAlias = bool | int | float | str
Allowed: TypeAlias = tuple[Value, ...]
"""Two numbers, lowest and highest; or texts; or truth values."""


def check_range(what: str, allowed: Any) -> None:
    """InputError if `allowed` says nothing of the kind; a single number is a mistake."""
    if not isinstance(allowed, tuple) or not allowed:
        raise InputError(f"{what} must be [lowest, highest], or a list of allowed values")
    if _is_range(allowed):
        low, high = allowed
        if not low <= high:  # False for NaN
            raise InputError(f"{what} must be [lowest, highest], got [{low!r}, {high!r}]")
    elif not (
        all(isinstance(value, str) for value in allowed)
        or all(isinstance(value, bool) for value in allowed)
    ):
        raise InputError(
            f"{what} must be two numbers, lowest and highest, or a list of texts or of true and "
            f"false, got {list(allowed)!r:.80}"
        )


def _is_range(allowed: Allowed) -> bool:
    return len(allowed) == 2 and all(_is_number(value) for value in allowed)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def within(value: Any, allowed: Allowed) -> bool:
    """Return whether a value is allowed; truth values are not numbers, NaN is in no range."""
    if _is_range(allowed):
        low, high = allowed
        return _is_number(value) and low <= value <= high
    return any(type(value) is type(one) and value == one for one in allowed)


def words_of(allowed: Allowed) -> str:
    """Return the allowed values in words."""
    if _is_range(allowed):
        return f"from {allowed[0]} to {allowed[1]}"
    return ", ".join(json.dumps(value) for value in allowed)
