"""Reading `.csv` and `.csv.gz`: one labelled row per line, columns by name."""

from __future__ import annotations

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedcal.datasets._columns import arguments, bad_score, find_columns, part_code
from fedcal.datasets._dataset import IDS
from fedcal.errors import InputError
from fedcal.npz import MAX_BYTES

MAX_LINE = 2**24
"""Characters in a line; a packed file without line ends must not fill the memory."""

_ID_BYTES = 64  # about what one short string takes


def read_csv(path: Path, labels_required: bool) -> dict[str, Any]:
    """Arguments for `from_arrays` from a `.csv` or `.csv.gz` file.

    Columns, in any order: `label`; optional `client`, `subject` and `split`; and
    `logit_0 .. logit_{c-1}`, `prob_0 .. prob_{c-1}`, or for two classes `score`, the probability of
    class 1. Labels may be names, see `from_arrays`, and the scores' columns have those names:
    `prob_cat`, `prob_dog`. Blank lines are skipped. `client` and `subject` are numeric if all cells
    of the column are whole numbers.

    Raises
    ------
    InputError
        One line; with the line number (from 1) where a single line is at fault.
    """
    try:
        if path.name.lower().endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as packed:
                return _read(packed, labels_required)
        with path.open(encoding="utf-8-sig", newline="") as plain:
            return _read(plain, labels_required)
    except InputError:
        raise
    except gzip.BadGzipFile:
        raise InputError("is not a gzip file") from None
    except (EOFError, zlib.error):
        raise InputError("is a truncated or damaged gzip file") from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or 'damaged'}") from None
    except MemoryError:
        raise InputError("does not fit into memory") from None


def _read(file: TextIO, labels_required: bool) -> dict[str, Any]:
    reader = csv.reader(_lines(file), strict=True)
    scores, labels, parts = array("d"), array("d"), array("b")
    words: list[str] = []  # labels, if the first one is no number
    ids: dict[str, list[str]] = {name: [] for name in IDS}
    try:
        header = next((row for row in reader if row), None)
        if header is None:
            raise InputError("is empty; the first line must name the columns")
        try:
            _check_commas(header)
            columns = find_columns([name.strip() for name in header], labels_required)
        except InputError as error:
            raise InputError(f"line {reader.line_num}: {error}") from None
        for row in reader:
            if not row:
                continue
            where = f"line {reader.line_num}"
            if len(row) != len(columns.names):
                hint = "; a decimal comma?" if len(row) > len(columns.names) else ""
                told = f"{where}: {len(row)} cells for {len(columns.names)} columns{hint}"
                raise InputError(told)
            try:
                scores.extend([float(row[place]) for place in columns.scores])
            except ValueError:  # now find out which
                for place in columns.scores:
                    _number(row[place], columns.names[place], where)
            if columns.kind == "score" and (problem := bad_score(scores[-1])):
                raise InputError(f"{where}: {problem}")
            if columns.label is not None:
                cell = row[columns.label].strip()
                if cell and (words or not (labels or _is_number(cell))):
                    words.append(cell)
                else:
                    labels.append(_number(cell, "label", where))
            for name, cells in ids.items():
                if (place := getattr(columns, name)) is not None:
                    cells.append(row[place].strip())
                    if not cells[-1]:
                        told = f"{where}: the {name} is empty; every row must name its own"
                        raise InputError(told)
            if columns.split is not None:
                parts.append(_part(row[columns.split].strip(), where))
            strings = len(words) + sum(map(len, ids.values()))
            if 8 * len(scores) + _ID_BYTES * strings > MAX_BYTES:
                raise InputError(f"{where}: more than {MAX_BYTES >> 30} GiB of rows")
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: {error}") from None
    if not scores:
        raise InputError("has no rows below the column names")
    return arguments(
        columns,
        np.frombuffer(scores, np.float64).reshape(-1, len(columns.scores)),
        None if columns.label is None else np.array(words or labels),
        {name: _numbers_or_names(cells) if cells else None for name, cells in ids.items()},
        None if columns.split is None else np.frombuffer(parts, np.int8),
        labels_required,
    )


def _lines(file: TextIO) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise InputError(f"line {number}: longer than {MAX_LINE} characters")
        if "\0" in line:
            raise InputError(f"line {number}: holds a NUL character; is this a text file?")
        yield line


def _check_commas(header: list[str]) -> None:
    for mark, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(header) == 1 and mark in header[0]:
            raise InputError(
                f"the columns are separated by {called}; separate them by commas, and write "
                f"decimals with points (pandas: read_csv(IN, sep={mark!r}, decimal=',')"
                ".to_csv(OUT, index=False))"
            )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, column: str, where: str) -> float:
    try:
        return float(cell)
    except ValueError:
        hint = "; decimals need a point" if _is_number(cell.replace(",", ".", 1)) else ""
        told = f"{where}: column {column!r} holds no number: {cell[:40]!r}{hint}"
        raise InputError(told) from None


def _part(cell: str, where: str) -> int:
    try:
        return part_code(cell)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _numbers_or_names(names: list[str]) -> Any:
    """Numbers if all are written as such; "007" is a name, and not that of client 7."""
    try:
        numbers = np.array([int(name) for name in names], np.int64)
    except (ValueError, OverflowError):
        return np.array(names, np.str_)
    return numbers if list(map(str, numbers.tolist())) == names else np.array(names, np.str_)
