"""Columns of Arrow record batches, wherever they come from, as arrays. pyarrow is handed in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.datasets._columns import Columns, arguments, bad_score, part_code
from fedcal.datasets._dataset import IDS
from fedcal.errors import InputError
from fedcal.npz import MAX_BYTES
from fedcal.types import Floats

BATCH = 2**14
"""Rows that are decoded at a time."""

MAX_NAME = 256
"""Characters in the name of a client, or of a subject."""


@contextmanager
def damage_in_one_line(pa: Any, what: str) -> Iterator[None]:
    """Turn whatever pyarrow raises for a file that is damaged or hostile into one InputError."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError("does not fit into memory") from None
    except OSError as error:
        if error.strerror:
            raise InputError(f"cannot be read: {error.strerror}") from None
        raise InputError(f"is not {what} (truncated or damaged)") from None
    except (pa.ArrowException, ValueError, OverflowError):
        raise InputError(f"is not {what} (truncated or damaged)") from None


def read_batches(
    pa: Any, batches: Iterable[Any], columns: Columns, labels_required: bool
) -> dict[str, Any]:
    """Arguments for `from_arrays` from record batches.

    Parameters
    ----------
    pa : the package pyarrow
    batches : record batches that hold the columns in use, under the names in `columns`
    columns : what they are
    labels_required : False where rows are to be calibrated, not learnt from

    Raises
    ------
    InputError
        One line that names the column and the row, from 0: types that are no numbers, nulls,
        lists of different length, more than 4 GiB of numbers.
    """
    reader = _Reader(pa, columns)
    for batch in batches:
        reader.read(batch)
    return reader.arguments(labels_required)


class _Reader:
    """The arrays of the batches so far."""

    def __init__(self, pa: Any, columns: Columns) -> None:
        self.pa, self.columns = pa, columns
        self.rows = self.bytes = 0
        self.width: int | None = None  # of lists
        self.parts: dict[str, list[NDArray[Any]]] = {}

    def read(self, batch: Any) -> None:
        """Add the rows of one batch."""
        batch.validate(full=True)  # offsets of a hostile file may point anywhere
        if batch.num_rows == 0:
            return
        columns = self.columns
        scores = [(columns.names[place], batch) for place in columns.scores]
        if columns.listed:
            x = self._lists(*scores[0])
        else:
            x = np.stack([self._numbers(name, of.column(name)) for name, of in scores], axis=1)
            x = x.astype(np.float64, copy=False)
        if columns.kind == "score":
            self._check_scores(x[:, 0])
        self._keep("scores", x)
        if columns.label is not None:
            self._keep("label", self._labels(batch.column("label")))
        for name in IDS:
            if getattr(columns, name) is not None:
                self._keep(name, self._ids(name, batch.column(name)))
        if columns.split is not None:
            self._keep("split", self._split(batch.column("split")))
        self.rows += batch.num_rows

    def arguments(self, labels_required: bool) -> dict[str, Any]:
        """All rows, as `from_arrays` takes them."""
        if not self.rows:
            raise InputError("has no rows")
        label, split, *ids = (
            np.concatenate(self.parts.pop(name)) if name in self.parts else None
            for name in ("label", "split", *IDS)
        )
        scores = np.concatenate(self.parts.pop("scores"))
        named = dict(zip(IDS, ids, strict=True))
        return arguments(self.columns, scores, label, named, split, labels_required)

    def _keep(self, name: str, array: NDArray[Any]) -> None:
        self.bytes += array.size * max(array.itemsize, 8)
        if self.bytes > MAX_BYTES:
            raise InputError(f"holds more than {MAX_BYTES >> 30} GiB of numbers")
        self.parts.setdefault(name, []).append(array)

    def _plain(self, array: Any) -> Any:
        """Dictionaries decoded, extension types as what they are stored as."""
        types = self.pa.types
        if isinstance(array.type, self.pa.BaseExtensionType):
            array = array.storage
        return array.dictionary_decode() if types.is_dictionary(array.type) else array

    def _no_nulls(self, name: str, array: Any, per_row: int = 1) -> None:
        if array.null_count:
            bad = np.asarray(array.is_null().to_numpy(zero_copy_only=False))
            row = self.rows + int(np.argmax(bad)) // per_row
            raise InputError(f"column {name!r} is null at row {row}")

    def _numbers(
        self, name: str, array: Any, *, truth: bool = False, per_row: int = 1
    ) -> NDArray[Any]:
        """(m,) numbers; `truth` lets true and false pass, `per_row` of them belong to a row."""
        types, array = self.pa.types, self._plain(array)
        self._no_nulls(name, array, per_row)
        kind = array.type
        if types.is_decimal(kind):
            array = array.cast(self.pa.float64())
        elif not (
            types.is_integer(kind)
            or types.is_floating(kind)
            or (truth and types.is_boolean(kind))
            or len(array) == 0
        ):
            raise InputError(f"column {name!r} holds {str(kind)[:60]}; must hold numbers")
        return np.asarray(array.to_numpy(zero_copy_only=False))

    def _labels(self, array: Any) -> NDArray[Any]:
        """(m,) numbers, true and false, or names of classes."""
        plain = self._plain(array)
        if self._is_text(plain):
            return np.array(self._text("label", plain), np.str_)
        return self._numbers("label", array, truth=True)

    def _lists(self, name: str, batch: Any) -> Floats:
        """(m, c) from a column of lists of c numbers each."""
        types, array = self.pa.types, self._plain(batch.column(name))
        self._no_nulls(name, array)
        kind = array.type
        if not (
            types.is_list(kind)
            or types.is_large_list(kind)
            or types.is_fixed_size_list(kind)
            or types.is_list_view(kind)
            or types.is_large_list_view(kind)
        ):
            raise InputError(f"column {name!r} holds {str(kind)[:60]}; must hold lists of numbers")
        lengths = np.asarray(array.value_lengths().to_numpy(zero_copy_only=False))
        width = int(lengths[0]) if self.width is None else self.width
        wrong = lengths != width
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(
                f"column {name!r} holds {lengths[row]} numbers at row {self.rows + row}, "
                f"but {width} at row 0"
            )
        self.width = width
        values = self._numbers(name, array.flatten(), per_row=max(width, 1))
        return values.astype(np.float64, copy=False).reshape(len(lengths), width)

    def _check_scores(self, x: Floats) -> None:
        for row in np.flatnonzero(~((x >= 0) & (x <= 1))):  # nan, too
            if problem := bad_score(float(x[row])):
                raise InputError(f"row {self.rows + int(row)}: {problem}")

    def _text(self, name: str, array: Any) -> list[str]:
        self._no_nulls(name, array)
        cells: list[str] = array.to_pylist()
        return cells

    def _is_text(self, array: Any) -> bool:
        types = self.pa.types
        return bool(
            types.is_string(array.type)
            or types.is_large_string(array.type)
            or types.is_string_view(array.type)
        )

    def _ids(self, name: str, array: Any) -> NDArray[Any]:
        array = self._plain(array)
        if not self._is_text(array):
            types = self.pa.types
            if not (types.is_integer(array.type) or types.is_floating(array.type)):
                self._no_nulls(name, array)
                kind = str(array.type)[:60]
                raise InputError(f"column {name!r} holds {kind}; must hold whole numbers or text")
            return self._numbers(name, array)
        cells = self._text(name, array)
        longest = max(map(len, cells))
        if longest > MAX_NAME:
            raise InputError(f"column {name!r}: a name of {longest} characters; up to {MAX_NAME}")
        return np.array(cells, np.str_)

    def _split(self, array: Any) -> NDArray[np.int8]:
        array = self._plain(array)
        if not self._is_text(array):
            self._no_nulls("split", array)
            raise InputError(f"column 'split' holds {str(array.type)[:60]}; must hold text")
        codes = dict.fromkeys(cells := self._text("split", array), 0)
        for cell in codes:
            try:
                codes[cell] = part_code(cell)
            except InputError as error:
                raise InputError(f"row {self.rows + cells.index(cell)}: {error}") from None
        return np.array([codes[cell] for cell in cells], np.int8)
