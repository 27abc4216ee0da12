"""Text from elsewhere, made harmless for a terminal, a log of one line an entry, a sentence."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence

_LONGEST = 2000
"""Characters of a log record; what comes after them is a stranger's."""

_JOINERS = "\u200c\u200d"
"""Invisible, but letters of some scripts need them."""


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
    return "".join(c if c in allowed or _harmless(c) else _escaped(c) for c in text)


def listed(names: Sequence[str], by: str = ", ", most: int = 5) -> str:
    """Return names as a sentence has them: of many the first, and how many more there are."""
    more = len(names) - most
    return by.join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _harmless(character: str) -> bool:
    # str.isprintable is false of all spaces but one
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


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
