"""Checks of single values, with one wording for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar

from fedcal.errors import InputError, NoEffect

Name = TypeVar("Name", bound=str)


def whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int in [low, high], or InputError."""
    allowed = f"a whole number >= {low}" if high is None else f"a whole number in [{low}, {high}]"
    number = isinstance(value, Integral) and not isinstance(value, bool)
    if not number or value < low or (high is not None and value > high):
        raise InputError(f"{name} must be {allowed}, got {value!r}")
    return int(value)


def positive(name: str, value: Any) -> float:
    """`value` as a finite float > 0, or InputError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number > 0, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # its digits would fill a page
        raise InputError(f"{name} must be a finite number > 0, got one above 1e308") from None
    if not math.isfinite(number) or number <= 0:
        raise InputError(f"{name} must be a finite number > 0, got {value!r}")
    return number


def unused(why: str, **given: Any) -> None:
    """NoEffect for the first parameter that is given, not None, and then does nothing."""
    for name, value in given.items():
        if value is not None:
            raise NoEffect(f"{name} has no effect here: {why}", name)


def one_of(name: str, value: Any, allowed: Iterable[Name]) -> Name:
    """`value` if it is among `allowed`, or InputError that lists them."""
    names = list(allowed)
    if value not in names:
        near = get_close_matches(str(value).lower(), names, 1, 0.75)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"unknown {name} {value!r}; {hint}allowed: {', '.join(names)}")
    return names[names.index(value)]
