"""Labelled rows to train on, and the arrays of images and the like."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.classes import ids_of, per_row, places_of
from fedcal.core.errors import InputError
from fedcal.core.types import Integers

MOST_CLASSES = 10_000

_KEYS = ("x", "y", "client", "test_x", "test_y", "test_client")
_PER_ROW = ("x", "y", "client", "subject", "group")


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Labelled rows of one source.

    Attributes
    ----------
    x
        features, (n, d) float32; or images and the like, (n, h, w[, channels]) uint8 or float32
    y
        (n,) int64 in [0, classes)
    names
        of the classes; or None, where there are as many as the largest label says
    client
        (n,) who owns a row, whole numbers or texts; or None
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
    """

    x: NDArray[Any] = field(repr=False)
    y: Integers = field(repr=False)
    names: tuple[str, ...] | None = None
    client: NDArray[Any] | None = field(default=None, repr=False)
    subject: Integers | None = field(default=None, repr=False)
    group: Integers | None = field(default=None, repr=False)
    group_names: tuple[str, ...] = ()
    norm: float | None = None
    test: LabelledRows | None = field(default=None, repr=False)
    ids: Integers | None = field(default=None, repr=False)

    @property
    def features(self) -> bool:
        """Whether each row is a list of numbers, as `softmax` and `mlp` read them."""
        return self.x.ndim == 2

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
        return replace(self, **picked, ids=self.numbers[rows], test=None)


def check_ids(name: str, ids: NDArray[Any], rows: int) -> NDArray[Any]:
    """Ids of clients, subjects or groups: whole numbers or texts, one per row."""
    return per_row(name, ids_of(name, ids), "features", rows)


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """Let what is wrong inside begin with the path."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path!r}: {error}") from None


def rows_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> LabelledRows:
    """Return rows of any shape from `x`, `y`, optional `client`, and the same of `test_` rows.

    Raises InputError, one line that begins with the key.
    """
    for key in arrays:
        if key not in _KEYS:
            raise InputError(f"unknown key {key[:80]!r}; allowed: {', '.join(_KEYS)}, or features")
    if "test_x" not in arrays and "test_y" not in arrays:
        return _checked(arrays, "")
    rows, test = _checked(arrays, ""), _checked(arrays, "test_")
    if _kind(rows) != _kind(test):
        raise InputError(f"test_x: {_kind(test)}, but x has {_kind(rows)}")
    if (rows.client is None) != (test.client is None):
        raise InputError("client and test_client: give both or none of them")
    return replace(rows, test=test)


def _kind(rows: LabelledRows) -> str:
    """Return the size of a row, and the type of its numbers."""
    return f"{' x '.join(map(str, rows.x.shape[1:]))} ({rows.x.dtype})"


def _checked(arrays: Mapping[str, NDArray[Any]], prefix: str) -> LabelledRows:
    for key in (f"{prefix}x", f"{prefix}y"):
        if key not in arrays:
            raise InputError(f"the array {key!r} is missing")
    x, y = arrays[f"{prefix}x"], arrays[f"{prefix}y"]
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise InputError(
            f"{prefix}x: must have shape (rows, height, width) or (rows, height, width, "
            f"channels), got {x.shape}"
        )
    if x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise InputError(f"{prefix}x: must be uint8 (0..255) or float, got {x.dtype}")
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise InputError(f"{prefix}x: all values must be finite")
    labels = places_of(f"{prefix}y", y, None, (len(x), MOST_CLASSES), "images")
    client = arrays.get(f"{prefix}client")
    if client is not None:
        client = check_ids(f"{prefix}client", client, len(x))
    return LabelledRows(x, labels, client=client)
