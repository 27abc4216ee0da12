"""Text for next-character prediction: one plain text, or a table with a client per line."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcal.errors import InputError

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 classes, in LEAF's order; a character that is not among them is read as a space."""

CONTEXT = 80
"""Characters that the next one is predicted from."""

MAX_BYTES = 2**30
"""Of a text, unpacked."""

_SUFFIXES = (".txt", ".tsv", ".tsv.gz")
_TEXT_COLUMNS = ("line", "text")


@dataclass(frozen=True, eq=False)
class Text:
    """What each client wrote, as numbers of `CHARACTERS`.

    Attributes
    ----------
    codes : (length,) uint8 for each client
    names : of the clients, or None where the source names none (then `codes` has one entry)
    """

    codes: tuple[NDArray[np.uint8], ...] = field(repr=False)
    names: tuple[str, ...] | None


def is_text(path: str) -> bool:
    """Whether a path is one of a text."""
    return path.lower().endswith(_SUFFIXES)


def encode(text: str) -> NDArray[np.uint8]:
    """Numbers of the characters, (len(text),)."""
    table = np.full(2**8, CHARACTERS.index(" "), np.uint8)
    table[[ord(c) for c in CHARACTERS]] = np.arange(len(CHARACTERS))
    points = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    return table[np.where(points < len(table), points, 0)]


def read_text(source: str) -> Text:
    """Read `.txt`, or `.tsv` and `.tsv.gz`, in UTF-8.

    A table has a line of headings. The column `line` or `text` (or else the last one) is what
    is said; all others together name the client who says it, in LEAF's Shakespeare a role of a
    play. A client's lines, in their order, are joined by newlines.

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    text = _read(Path(source).expanduser(), source)
    if source.lower().endswith(".txt"):
        return Text((encode(text),), None)
    heading, *lines = text.split("\n")
    columns = heading.rstrip("\r").split("\t")
    if len(columns) < 2:
        raise InputError(f"{source!r}: needs a column that names the client, and one of the text")
    said = next((columns.index(c) for c in _TEXT_COLUMNS if c in columns), len(columns) - 1)
    lines_of: dict[tuple[str, ...], list[str]] = {}
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        fields = line.rstrip("\r").split("\t")
        if len(fields) != len(columns):
            raise InputError(
                f"{source!r}: line {number} has {len(fields)} columns, not {len(columns)}"
            )
        lines_of.setdefault(tuple(fields[:said] + fields[said + 1 :]), []).append(fields[said])
    if not lines_of:
        raise InputError(f"{source!r}: has no lines")
    names = tuple(": ".join(key) for key in sorted(lines_of))
    return Text(tuple(encode("\n".join(lines_of[key])) for key in sorted(lines_of)), names)


def _read(path: Path, source: str) -> str:
    try:
        if source.lower().endswith(".gz"):
            with gzip.open(path) as file:
                raw = file.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InputError(f"{source!r}: more than {MAX_BYTES >> 30} GiB of text")
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{source!r}: is not UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{source!r}: is not an intact gzip file") from None
    except OSError as error:
        raise InputError(f"{source!r}: {error.strerror or 'cannot be read'}") from None
