"""Checks of single values, also of a run config, with one wording for all of them."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar

from fedcal.core.errors import InputError, NoEffect
from fedcal.core.removed import check_kept

Name = TypeVar("Name", bound=str)
Given = TypeVar("Given")


def whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int in [low, high], or InputError."""
    allowed = f"a whole number >= {low}" if high is None else f"a whole number in [{low}, {high}]"
    allowed = str(low) if low == high else allowed
    number = isinstance(value, Integral) and not isinstance(value, bool)
    if not number or value < low or (high is not None and value > high):
        raise InputError(f"{name} must be {allowed}, got {value!r}")
    return int(value)


def number_in(value: object, kind: Callable[[str], Any] = float) -> Any:
    """Return the number that a text is, or a number itself, or raise ValueError.

    Python itself also takes 0_1, "infinity" and the digits of other scripts: a table or a command
    line that holds them is rather damaged. `kind` is `float` or `int`.
    """
    text = str(value)
    if "_" in text or "y" in text or "Y" in text or not text.isascii():
        raise ValueError(f"{text[:40]!r} is not a number")
    return kind(text)


def interval(text: str, allowed: str = "") -> Callable[[str, Any], float]:
    """Return a check for a number in an interval, as "(0, 1]": round brackets leave ends out.

    The message calls the interval `allowed`, if that is not empty.
    """
    low, high = (float(end) for end in text[1:-1].split(","))

    def check(name: str, value: Any) -> float:
        try:
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            number = float(value) if is_number else math.nan
        except OverflowError:  # its digits would fill a page
            value = number = math.inf
        ends = text[0] == "(" and number == low, text[-1] == ")" and number == high
        if not low <= number <= high or any(ends):
            raise InputError(f"{name} must be {allowed or f'in {text}'}, got {value!r:.80}")
        return number

    return check


finite = interval("(-inf, inf)", "a finite number")
positive = interval("(0, inf)", "a finite number > 0")


def fraction(name: str, value: Any, ends: str = "()") -> float:
    """`value` as a float in (0, 1), or InputError; `ends` such as "[)" let 0 or 1 be one, too."""
    return interval(f"{ends[0]}0, 1{ends[1]}")(name, value)


def listed(name: str, value: Any, kind: str) -> list[Any]:
    """Return a list (or tuple), or the JSON text of one, as a list; InputError otherwise.

    Files and messages of settings hold lists as text.

    Parameters
    ----------
    name, kind
        what it is called, and what it is a list of, for the message
    """
    entries = value
    if isinstance(value, str):
        try:
            entries = json.loads(value)
        except ValueError:
            entries = None
    of = (str, int) if kind.startswith("names") else (int, float)
    if not isinstance(entries, (list, tuple)) or not all(
        isinstance(one, of) and not isinstance(one, bool) for one in entries
    ):
        raise InputError(f"{name} must be a list of {kind}, got {value!r:.80}")
    return list(entries)


def like(name: str, value: Any, form: str | re.Pattern[str], allowed: str = "") -> str:
    """`value` if all of it is text of a form, or InputError; `allowed` are words for the form."""
    form = re.compile(form)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InputError(f"{name} must be {allowed or f'like {form.pattern}'}, got {value!r:.80}")
    return value


def different(what: str, values: Iterable[object]) -> None:
    """InputError for what is there twice."""
    twice = next((value for value, count in Counter(values).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"two {what}: {twice!r:.80} is there twice")


def same(what: str, asked: object, own: object) -> None:
    """InputError unless what is asked for is what is here."""
    if asked != own:
        one, another = repr(own), repr(asked)
        differ = f"must be {one}, got {another:.80}" if len(one) <= 80 else "is another one"
        raise InputError(f"the {what} {differ}")


def needed(name: str, value: Given | None, why: str) -> Given:
    """Return what was given, or InputError that says why it must be."""
    if value is None:
        raise InputError(f"{name} is needed: {why}")
    return value


def unused(why: str, **settings: Any) -> None:
    """NoEffect for the first parameter that is given, not None, and then does nothing."""
    for name, value in settings.items():
        if value is not None:
            raise NoEffect(f"{name} has no effect here: {why}", name)


_FEW, _NEAREST = 8, 3
"""Names that a message lists, and those that it names of more."""

_ALIKE, _LONGEST = 0.75, 200
"""Likeness of what was meant, and characters that are compared."""


def one_of(name: str, value: Any, allowed: Iterable[Name], listed: str = "") -> Name:
    """`value` if it is among `allowed`, or InputError that lists them.

    Of many that a command or page lists, `listed`, it names the nearest and that place.
    """
    names = list(allowed)
    if value not in names:
        check_kept(f"{name} {value}")
        raise InputError(f"unknown {name} {value!r:.200}; {near(value, names, listed)}")
    return names[names.index(value)]


def near(value: Any, names: Sequence[str], listed: str = "") -> str:
    """Return the end of a message about an unknown name, with near ones; see `one_of`."""
    text = str(value)[:_LONGEST].lower()
    begun = [name for name in names if text and name.startswith(text)]
    alike = get_close_matches(text, names, 1, _ALIKE) or (begun if len(begun) == 1 else [])
    hint = f"did you mean {alike[0]!r}? " if alike else ""
    if not listed or len(names) <= _FEW:
        return f"{hint}allowed: {', '.join(names)}"
    nearest = ", ".join(get_close_matches(text, names, _NEAREST, 0))
    return f"{hint}nearest of {len(names)}: {nearest}; {listed} lists all"


T = TypeVar("T", str, int, float, bool)
_CALLED = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def of_kind(name: str, value: Any, kind: type[T]) -> T:
    """Return a value of this kind, or InputError; a float may be a whole number."""
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (kind is not bool and isinstance(value, bool)):
        raise InputError(f"{name} must be {_CALLED[kind]}, got {value!r:.80}")
    return kind(value)


def read(fields: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return the value of a run config, which must be there and of this kind."""
    return of_kind(f"{key!r} of the run config", fields.get(key), kind)
