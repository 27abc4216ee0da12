"""Text from elsewhere: names in one form, and text that a terminal or a log can show.

Names of classes: a server and its sites agree on them before they talk.
"""

import hashlib
import json
import logging
import re
import unicodedata
from collections.abc import Sequence

from fedcal.core.checks import InputError

_LONGEST = 2000
"""Characters of a log record; what comes after them is a stranger's."""

_JOINERS = "\u200c\u200d"
"""Invisible, but letters of some scripts need them."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return the text with all that a terminal may obey written as an escape.

    Formal guarantee: what is returned has no control character (C0 with ESC and line breaks, DEL,
    C1), no character that turns the direction of writing, no separator of lines or paragraphs,
    and no lone surrogate. Letters, marks and symbols of every script stay as they are.

    Parameters
    ----------
    lines
        keep line feeds and tabs

    Examples
    --------
    >>> printable("red \x1b[31m and back\u202e\n")
    'red \\x1b[31m and back\\u202e\\n'
    """
    if text.isprintable():
        return text
    allowed = _JOINERS + ("\n\t" if lines else "")
    return "".join(
        # str.isprintable is false of all spaces but one
        c
        if c in allowed or c.isprintable() or unicodedata.category(c) == "Zs"
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def one_form(name: str) -> str:
    """Return a name in its one form: Unicode NFC, one space between words. Never fails."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def plain_name(what: str, name: str) -> str:
    """Return a name in its one form.

    Raises InputError for a character that no reader sees, such as a control character.
    """
    visible = unicodedata.normalize("NFC", name).strip()
    if visible != printable(visible):
        shown = printable(visible)[:80]
        raise InputError(f"{what}: '{shown}' has a control or invisible character")
    return one_form(name)


def value_of(name: str) -> float | None:
    """Return the number that a name is, True or False for a truth value, else None."""
    if name.lower() in ("true", "false"):
        return name.lower() == "true"
    if not _NUMBER.fullmatch(name):
        return None
    return int(name) if name.lstrip("+-").isdecimal() and len(name) < 4000 else float(name)


def key_of(name: str) -> float | str:
    """Return a name's value if it is a number or a truth value, else the name: 1, 1.0 are one."""
    plain = plain_name("name of a class", name)
    value = value_of(plain)
    return plain if value is None else value


def listed(names: Sequence[str], by: str = ", ", most: int = 5) -> str:
    """Return names as a sentence has them: of many the first, and how many more there are."""
    more = len(names) - most
    return by.join(names[:most]) + (f" and {more} more" if more > 0 else "")


class Printable(logging.Filter):
    """Make each record of a logger printable text of bounded length, and so its traceback.

    Parameters
    ----------
    lines
        leave a record its line feeds, as Flower's have some; without it each is one line
    """

    def __init__(self, *, lines: bool = False) -> None:
        super().__init__()
        self._lines = lines

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record; every one passes."""
        record.msg, record.args = printable(record.getMessage()[:_LONGEST], lines=self._lines), ()
        if record.exc_info and not record.exc_text:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = printable(text, lines=True)
        return True


def names_in(text: str) -> tuple[str, ...]:
    """Names by comma, as a command line has them; InputError if one is empty or there twice."""
    names = tuple(name.strip() for name in text.split(","))
    return class_names(names, len(names))


def class_names(
    names: Sequence[str] | None, classes: int, what: str = "class names"
) -> tuple[str, ...]:
    """One name for each class, in the order of the columns; None = their numbers, from "0".

    Names are in one form. Raises InputError if there are more or fewer names than classes, or a
    name is empty, there twice (also as another form of one number: 1, 1.0), or has a control
    character.
    """
    if names is None:
        return tuple(map(str, range(classes)))
    from fedcal.core.numerics import refuse_masked  # NumPy, which a list of commands does without

    refuse_masked(what, names)
    checked = tuple(plain_name(what, str(name)) for name in names)
    if len(checked) != classes or len({*map(key_of, checked)} - {""}) < len(checked):
        allowed = f"must differ, one for each of {classes} classes, and none be empty"
        raise InputError(f"{what} {allowed}, got {len(checked)}: {quoted(checked)}")
    return checked


def digest_of(names: Sequence[str]) -> str:
    """SHA-256 of the names in their order, 64 hexadecimal digits.

    Equal digests mean that column j of the scores is the same class everywhere.
    """
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()


def called(names: Sequence[str] | None, j: int) -> str:
    """Return the name of class j in a sentence: "class 3" if it has a number only."""
    name = str(j) if names is None else names[j]
    return f"class {name}" if name.isdecimal() else name


def quoted(names: Sequence[str]) -> str:
    """Return the first ten names, each in quotation marks and shortened."""
    return listed([repr(name[:40]) for name in names], most=10)


def in_a_line(names: Sequence[str]) -> str:
    """Return the classes in column order as a line; of two also which is positive."""
    positive = f" (positive: {names[1]})" if len(names) == 2 else ""
    return f"classes: {listed(names, most=10)}{positive}"
