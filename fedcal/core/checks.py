"""Errors that fedcal raises on purpose.

::

    FedcalError                   exit code 1
    |-- InputError                exit code 2: something the user gave is not allowed
    |   |-- NoEffect              ... or would change nothing in this run
    |   |-- FormError             ... or a model or batch of another form, whatever its rows are
    |   |-- BudgetExceeded        ... or the privacy ledger refuses the charge
    |   `-- ContributionRefused   ... or a client's unbounded contribution does not fit the ring
    |-- Absent                    exit code 1: a part that a result does not have
    |-- PrivacyError              exit code 1: a release that its plan does not cover
    `-- RoundFailed               exit code 1: sampled clients did not answer

    Interrupted                   Ctrl-C, where something was kept

Each message is one line: what is wrong, where, and what is allowed.

What earlier versions had, and what to use instead.

Checks of single values, also of a run config, with one wording for all of them.
"""

import json
import math
import re
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NoReturn, TypeVar


class FedcalError(Exception):
    """Root of the tree; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(FedcalError, ValueError):
    """A value, a file or an option that is not allowed."""

    exit_code = 2


class Absent(FedcalError, AttributeError):
    """A part that a result does not have; `hasattr` says so, too."""


class FormError(InputError):
    """A model or a batch of another form; the text tells nothing of any row and may leave it."""


NO_ROWS = "no labelled rows"
"""Text of a FormError of a Flower app's client that has none: an exact run goes on without it."""


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put `where` in front of the message of an InputError that the block raises."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def reason(error: OSError) -> str:
    """Return why a file cannot be written; NumPy says only how much of an array was."""
    return error.strerror or f"{error} (is the disk full?)"


@contextmanager
def system_errors(what: str) -> Iterator[None]:
    """Turn an error of the system in the block into an InputError: `what` fails, and why."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: {reason(error)}") from None


@contextmanager
def damaged(what: str, *more: type[Exception]) -> Iterator[None]:
    """Turn an error over what a file or a message holds into an InputError: `what`.

    Of a key that is missing the message has the name; `more` errors are those of other libraries.
    An InputError of the block stays as it is.
    """
    wrong = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
    kinds: tuple[type[Exception], ...] = (*wrong, *more)
    try:
        yield
    except InputError:
        raise
    except kinds as error:
        missing = f": {str(error)[:80]} is missing" if isinstance(error, KeyError) else ""
        raise InputError(f"{what}{missing}") from None


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turn whatever else a user's own code raises in the block into an InputError of one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as e:  # noqa: BLE001  it is the user's own code
        line = str(e).strip().partition("\n")[0]
        raise InputError(f"{what} fails: {type(e).__name__}: {line}") from None


class NoEffect(InputError):
    """A parameter `name` was given that this run does not use."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class BudgetExceeded(InputError):
    """The ledger refuses a charge; nothing was released."""


class ContributionRefused(InputError):
    """An unbounded contribution is not finite or leaves the ring; or one has another shape."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C; the message says what was kept, and how to go on."""


class TooLittle(UserWarning):
    """A run has too little to make the model better: too few clients, rows or classes."""


def warn(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line that called fedcal, however deep in it this is called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("fedcal."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)


class PrivacyError(FedcalError):
    """A release was attempted that its privacy plan does not cover."""


class RoundFailed(FedcalError):
    """Clients were asked and none of them (or too few) answered."""


REMOVED: dict[str, str] = tomllib.loads(Path(__file__).with_name("removed.toml").read_text("utf-8"))
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")


def refuse(module: str, name: str) -> NoReturn:
    """Raise for a name that a module lacks: InputError if it was removed, else AttributeError."""
    check_kept(f"{module}.{name}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


Name = TypeVar("Name", bound=str)
Given = TypeVar("Given")


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
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
CALLED: Mapping[Any, str] = {
    **{str: "text", int: "a whole number", float: "a number", bool: "true or false"},
    **{tuple: "a list", date: "a day, as 2026-10-01"},
}
"""Words for the types of values."""


def of_kind(name: str, value: Any, kind: type[T]) -> T:
    """Return a value of this kind, or InputError; a float may be a whole number."""
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (kind is not bool and isinstance(value, bool)):
        raise InputError(f"{name} must be {CALLED[kind]}, got {value!r:.80}")
    return kind(value)


def read(fields: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return the value of a run config, which must be there and of this kind."""
    return of_kind(f"{key!r} of the run config", fields.get(key), kind)
