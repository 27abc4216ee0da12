"""Labelled rows to train on, and the readers of texts and of the folders that LEAF wrote."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.classes import ids_of, per_row
from fedcal.core.errors import InputError
from fedcal.core.types import Integers
from fedcal.storage.atomic import path_of

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 classes, in LEAF's order; a character that is not among them is read as a space."""

CONTEXT = 80
"""Characters that the next one is predicted from."""

MAX_BYTES = 2**30
"""Of a text, unpacked."""

MOST_CLASSES = 10_000

_SUFFIXES = (".txt", ".tsv", ".tsv.gz")
_TEXT_COLUMNS = ("line", "text")


_PER_ROW = ("x", "y", "client", "training", "subject", "group")


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Labelled rows of one source.

    Attributes
    ----------
    x
        (n, h, w) or (n, h, w, channels), uint8 or float32; windows of a text: (n, context) uint8;
        features: (n, d) float32
    y
        (n,) int64 in [0, classes)
    names
        of the classes; or None, where there are as many as the largest label says
    client
        (n,) who owns a row, whole numbers or texts; or None
    training
        (n,) whether the source itself says that a row is for training; or None
    ordered
        rows of a client are a sequence, which must not be shuffled before it is cut
    subject, group
        (n,) int64, whom a row is about and to which group it belongs; or None
    group_names
        of the groups, by their numbers
    norm
        a public bound on the Euclidean norm of each row of features; or None
    test
        the source's own test rows, which nothing is trained on; or None
    ids
        (n,) int64, the rows' numbers in their source (training and test rows are numbered apart);
        None = in the order of the rows
    shifted
        of test rows: (corruption, severity) -> their features after that corruption, (n, d)
    """

    x: NDArray[Any] = field(repr=False)
    y: Integers = field(repr=False)
    names: tuple[str, ...] | None = None
    client: NDArray[Any] | None = field(default=None, repr=False)
    training: NDArray[np.bool_] | None = field(default=None, repr=False)
    ordered: bool = False
    subject: Integers | None = field(default=None, repr=False)
    group: Integers | None = field(default=None, repr=False)
    group_names: tuple[str, ...] = ()
    norm: float | None = None
    test: LabelledRows | None = field(default=None, repr=False)
    ids: Integers | None = field(default=None, repr=False)
    shifted: Mapping[tuple[str, int], NDArray[Any]] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> str:
        """Kind of input of a model: "image", "text" or "features"."""
        if self.ordered:
            return "text"
        return "features" if self.x.ndim == 2 else "image"

    @property
    def classes(self) -> int:
        """Number of classes; where they have no names, that of the largest label, test rows too."""
        if self.names is not None:
            return len(self.names)
        return max(int(self.y.max()) + 1, 0 if self.test is None else self.test.classes)

    @property
    def numbers(self) -> Integers:
        """The rows' numbers in their source, (n,)."""
        return np.arange(len(self.y)) if self.ids is None else self.ids

    def take(self, rows: Integers | NDArray[np.bool_] | slice) -> LabelledRows:
        """Return some of the rows, without the source's test rows."""
        own = {name: getattr(self, name) for name in _PER_ROW}
        picked = {name: column[rows] for name, column in own.items() if column is not None}
        return replace(self, **picked, ids=self.numbers[rows], test=None, shifted={})

    @property
    def judged(self) -> LabelledRows:
        """The rows that a model is judged on: the test rows if there are any, else all."""
        return self if self.test is None else self.test


def check_ids(name: str, ids: NDArray[Any], rows: int) -> NDArray[Any]:
    """Ids of clients, subjects or groups: whole numbers or texts, one per row."""
    return per_row(name, ids_of(name, ids), "features", rows)


def is_text(path: str) -> bool:
    """Return whether a path names a text."""
    return path.lower().endswith(_SUFFIXES)


def encode(text: str) -> NDArray[np.uint8]:
    """Numbers of the characters, (len(text),)."""
    table = np.full(2**8, CHARACTERS.index(" "), np.uint8)
    table[[ord(c) for c in CHARACTERS]] = np.arange(len(CHARACTERS))
    points = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    return table[np.where(points < len(table), points, 0)]


def read_text(source: str) -> list[tuple[str | None, NDArray[np.uint8]]]:
    """Read `.txt`, or `.tsv` and `.tsv.gz`, in UTF-8: each client's name, and its text as numbers.

    A table has a line of headings. The column `line` or `text` (or else the last one) is what
    is said; all others together name the client who says it, in LEAF's Shakespeare a role of a
    play. A client's lines, in their order, are joined by newlines. A `.txt` has one client,
    without a name.

    Raises InputError, one line that begins with the path.
    """
    text = _read(path_of(source), source)
    if source.lower().endswith(".txt"):
        return [(None, encode(text))]
    heading, *lines = text.split("\n")
    columns = heading.rstrip("\r").split("\t")
    if len(columns) < 2:
        raise InputError(f"{source!r}: needs a column that names the client, and one of the text")
    at = next((columns.index(c) for c in _TEXT_COLUMNS if c in columns), len(columns) - 1)
    lines_of: dict[tuple[str, ...], list[str]] = {}
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        fields = line.rstrip("\r").split("\t")
        if len(fields) != len(columns):
            raise InputError(
                f"{source!r}: line {number} has {len(fields)} columns, not {len(columns)}"
            )
        lines_of.setdefault(tuple(fields[:at] + fields[at + 1 :]), []).append(fields[at])
    if not lines_of:
        raise InputError(f"{source!r}: has no lines")
    return [(": ".join(key), encode("\n".join(spoken))) for key, spoken in sorted(lines_of.items())]


def _read(path: Path, source: str) -> str:
    opened: Any = gzip.open if source.lower().endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            raw: bytes = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InputError(f"{source!r}: more than {MAX_BYTES >> 30} GiB of text")
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{source!r}: is not UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{source!r}: is not an intact gzip file") from None
    except OSError as error:
        raise InputError(f"{source!r}: {error.strerror or 'cannot be read'}") from None


def read_leaf(folder: Path) -> LabelledRows:
    """Read a folder of LEAF (Caldas et al. 2018): FEMNIST's images or Shakespeare's windows.

    In `train/*.json` and `test/*.json` there are `users`, and `user_data` with `x` and `y` of each.
    A user's `x` is a list of square grey images (of size^2 numbers in [0, 1] each) with classes
    `y`, or a list of texts of 80 characters with the character `y` that follows each.

    Raises InputError, one line that begins with the file.
    """
    rows: list[tuple[Any, Any, str, bool]] = []
    for part in ("train", "test"):
        for file in sorted(path_of(folder).glob(f"{part}/*.json")):
            try:
                data = json.loads(file.read_text("utf-8"))["user_data"]
                users = [(user, list(of["x"]), list(of["y"])) for user, of in data.items()]
            except OSError as error:
                raise InputError(f"{str(file)!r}: {error.strerror}") from None
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise InputError(f"{str(file)!r}: is not JSON as LEAF writes it") from None
            for user, x, y in users:
                if len(x) != len(y):
                    raise InputError(f"{str(file)!r}: user {user!r} has {len(x)} x and {len(y)} y")
                rows += [(*row, user, part == "train") for row in zip(x, y, strict=True)]
    if not rows:
        raise InputError(f"{str(folder)!r}: no rows")
    inputs, labels, owners, training = map(list, zip(*rows, strict=True))
    of_rows = {"client": np.array(owners), "training": np.array(training)}
    read = _windows if isinstance(inputs[0], str) else _images
    return read(folder, inputs, labels, of_rows)


def _windows(folder: Path, x: list[Any], y: list[Any], of_rows: dict[str, Any]) -> LabelledRows:
    fit = all(isinstance(t, str) and len(t) == CONTEXT for t in x)
    if not fit or not all(isinstance(c, str) and len(c) == 1 for c in y):
        raise InputError(f"{str(folder)!r}: each x must be {CONTEXT} characters, each y one")
    inputs = encode("".join(x)).reshape(len(x), CONTEXT)
    labels = encode("".join(y)).astype(np.int64)
    return LabelledRows(inputs, labels, tuple(CHARACTERS), ordered=True, **of_rows)


def _images(folder: Path, x: list[Any], y: list[Any], of_rows: dict[str, Any]) -> LabelledRows:
    try:
        with np.errstate(over="ignore"):  # not finite then, which is refused below
            pixels, labels = np.array(x, np.float32), np.array(y)
    except (ValueError, TypeError):
        raise InputError(f"{str(folder)!r}: x must hold images of one size") from None
    size = math.isqrt(pixels.shape[1]) if pixels.ndim == 2 else 0
    if pixels.ndim != 2 or size * size != pixels.shape[1] or not np.isfinite(pixels).all():
        raise InputError(f"{str(folder)!r}: x must hold square images, as lists of finite numbers")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= MOST_CLASSES:
        raise InputError(f"{str(folder)!r}: y must hold classes, whole numbers >= 0")
    if labels.max() < 1:
        raise InputError(f"{str(folder)!r}: there is one class; at least 2 are needed")
    return LabelledRows(pixels.reshape(-1, size, size), labels.astype(np.int64), **of_rows)
