"""Reader of `.parquet`: columns of record batches as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.datasets._columns import Columns, arguments, find_columns
from fedcal.datasets._dataset import IDS
from fedcal.storage.npz import MAX_BYTES, intact, room

BATCH = 2**14
"""Rows that are decoded at a time."""

_BATCH_BYTES = 2**27

MAX_NAME = 256
"""Characters in a cell of text."""

_NUMBERS = ("integer", "floating", "decimal")
_TEXT = ("string", "large_string", "string_view")
_LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
_HOLDS = {  # required content of a column, and allowed types
    "label": ("numbers", (*_NUMBERS, "boolean", *_TEXT)),
    **dict.fromkeys(IDS, ("whole numbers or text", ("integer", "floating", *_TEXT))),
    "split": ("text", _TEXT),
}


def damage(pa: Any, what: str) -> dict[tuple[type[Exception], ...], str]:
    """Return pyarrow's errors for a damaged or hostile file, for `fedcal.storage.npz.intact`."""
    errors = (pa.ArrowException, OSError, ValueError, OverflowError)
    return {errors: f"is not {what} (truncated or damaged)"}


def read_batches(
    pa: Any, batches: Iterable[Any], columns: Columns, labels_required: bool, most: int = MAX_BYTES
) -> dict[str, Any]:
    """Return arguments for `from_arrays` from record batches.

    Parameters
    ----------
    pa
        the package pyarrow
    batches
        record batches that hold the columns in use, under the names in `columns`
    columns
        columns in use
    labels_required
        False if rows are to be calibrated, not learnt from
    most
        bytes of numbers

    Raises
    ------
    InputError
        One line that names the column and the row, from 0: types that are not numbers, nulls, lists
        of different length, more than `most`.
    """
    reader = Reader(pa, columns, most)
    for batch in batches:
        batch.validate(full=True)  # offsets of a hostile file may point anywhere
        if batch.num_rows:
            reader.read(batch)
    if not reader.rows:
        raise InputError("has no rows")
    values = {
        name: parts[0] if len(parts) == 1 else np.concatenate(parts)
        for name, parts in ((name, reader.parts.pop(name)) for name in list(reader.parts))
    }
    return arguments(columns, values, labels_required)


def read_parquet(path: Path, labels_required: bool) -> dict[str, Any]:
    """Return arguments for `from_arrays` from a `.parquet` file.

    Columns, in any order: `label`; optional `client`, `subject`, `group` and `split`; and
    `logits` or `probs` with a list of c numbers in each row, or as in a `.csv`: `logit_0 ..`,
    `prob_0 ..`, or `score`; for a second model the same names after `other_`.
    Rows are decoded in batches; dictionaries and decimals are converted to their values.

    Raises InputError, one line: pyarrow is missing, or the file is invalid; rows count from 0.
    """
    pa = need("pyarrow", "parquet", "reading .parquet files")
    pq = need("pyarrow.parquet", "parquet", "reading .parquet files")
    with (
        intact(damage(pa, "an intact .parquet file")),
        path.open("rb") as raw,
        pq.ParquetFile(raw, page_checksum_verification=True) as file,
    ):
        columns = find_columns(file.schema_arrow.names, labels_required, lists=True)
        # not metadata.row_group(k).column(j): if it is damaged, pyarrow ends the process
        if file.metadata.num_rows * len(columns.used) * 8 > (most := room(path)):
            raise InputError(f"declares more than {most >> 20:,} MiB of numbers")
        row = next(file.iter_batches(batch_size=1, columns=columns.used), None)
        size = BATCH if row is None else max(1, min(BATCH, _BATCH_BYTES // max(row.nbytes, 1)))
        batches = file.iter_batches(batch_size=size, columns=columns.used)
        return read_batches(pa, batches, columns, labels_required, most)


class Reader:
    """Reader that collects the arrays of batches."""

    def __init__(self, pa: Any, columns: Columns, most: int = MAX_BYTES) -> None:
        self.pa, self.columns, self.most = pa, columns, most
        self.rows = self.bytes = 0
        self.widths: dict[str, int] = {}  # of columns of lists
        self.parts: dict[str, list[NDArray[Any]]] = {}

    def read(self, batch: Any) -> None:
        """Add the rows of one batch."""
        arrays = {}
        for model, scores in self.columns.models.items():
            if scores.listed:
                (name,) = scores.names
                x = self._lists(name, batch.column(name))
            else:
                columns = [self._values(name, batch.column(name)) for name in scores.names]
                x = np.stack(columns, axis=1)
            arrays[model] = x.astype(np.float64, copy=False)
        for name in self.columns.single:
            arrays[name] = self._values(name, batch.column(name), *_HOLDS[name])
        for name, array in arrays.items():
            self.bytes += array.size * max(array.itemsize, 8)
            if self.bytes > self.most:
                raise InputError(f"holds more than {self.most >> 20:,} MiB of numbers")
            self.parts.setdefault(name, []).append(array)
        self.rows += batch.num_rows

    def _checked(
        self, name: str, array: Any, what: str, types: tuple[str, ...], per_row: int = 1
    ) -> Any:
        """Return an array without nulls of one of these types, with `per_row` entries in a row.

        Dictionaries are decoded; extension types are replaced by their storage.
        """
        if isinstance(array.type, self.pa.BaseExtensionType):
            array = array.storage
        if self.pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.null_count and name not in IDS:  # `ids_of` counts those without a name
            bad = np.asarray(array.is_null().to_numpy(zero_copy_only=False))
            row = self.rows + int(np.argmax(bad)) // per_row
            raise InputError(f"column {name!r} is null at row {row}")
        fits = any(getattr(self.pa.types, f"is_{kind}")(array.type) for kind in types)
        if len(array) and not fits:
            raise InputError(f"column {name!r} holds {str(array.type)[:60]}; must hold {what}")
        return array

    def _values(
        self,
        name: str,
        array: Any,
        what: str = "numbers",
        types: tuple[str, ...] = _NUMBERS,
        per_row: int = 1,
    ) -> NDArray[Any]:
        """Return (m,) numbers, bools or text; parameters are those of `_checked`."""
        array = self._checked(name, array, what, types, per_row)
        if self.pa.types.is_decimal(array.type):
            array = array.cast(self.pa.float64())
        values = np.asarray(array.to_numpy(zero_copy_only=False))
        if values.dtype.kind != "O":
            return values
        longest = max(len(value or "") for value in values)
        if longest > MAX_NAME:
            raise InputError(f"column {name!r}: a name of {longest} characters; up to {MAX_NAME}")
        return values.astype(np.str_)

    def _lists(self, name: str, array: Any) -> NDArray[Any]:
        """Return (m, c) numbers from a column of lists of c numbers each."""
        array = self._checked(name, array, "lists of numbers", _LISTS)
        lengths = np.asarray(array.value_lengths().to_numpy(zero_copy_only=False))
        width = self.widths.setdefault(name, int(lengths[0]))
        wrong = lengths != width
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(
                f"column {name!r} holds {lengths[row]} numbers at row {self.rows + row}, "
                f"but {width} at row 0"
            )
        values = self._values(name, array.flatten(), per_row=max(width, 1))
        return values.reshape(len(lengths), width)
