"""Reader of `.csv` and `.csv.gz`: one labelled row per line, columns by name."""

from __future__ import annotations

import csv
import gzip
import warnings
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedcal.core.checks import number_in
from fedcal.core.errors import InputError
from fedcal.datasets._columns import arguments, find_columns, study_columns
from fedcal.datasets._dataset import IDS
from fedcal.storage.npz import intact, room

CSV_FORMS = {"en": ",", "de": ";"}
"""Separator of columns by form of a CSV file; decimals have a point ("en") or a comma ("de")."""

_SWAPPED = str.maketrans(".,", ",.")

MAX_LINE = 2**24
"""Characters in a line; a packed file without line ends must not fill the memory."""

_DAMAGE: dict[tuple[type[Exception], ...], str] = {
    (gzip.BadGzipFile,): "is not a gzip file",
    (EOFError, zlib.error): "is a truncated or damaged gzip file",
    (UnicodeDecodeError,): "is not UTF-8 text (save it as CSV UTF-8)",
}
_TEXT_BYTES = 64  # about the memory of one short string


def read_csv(
    path: Path, labels_required: bool, *, others: bool = False, form: str = "en"
) -> dict[str, Any]:
    """Return arguments for `from_arrays` from a `.csv` or `.csv.gz` file.

    Columns, in any order: `label`; optional `client`, `subject`, `group` and `split`; and `logit_0
    .. logit_{c-1}`, `prob_0 .. prob_{c-1}`, or for two classes `score`, the probability of class 1;
    for a second model the same names after `other_`. Labels may be names, see `from_arrays`, and
    the scores' columns have those names: `prob_cat`, `prob_dog`. Blank lines are skipped. `client`,
    `subject` and `group` are numeric if all cells of the column are integers. With the form "de"
    semicolons separate columns and decimals have a comma; a point is an error, for it may separate
    thousands. With `others`, columns with other names are ignored, with a warning.

    Raises InputError, one line; with the line number (from 1) if a single line is invalid.
    """
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with intact(_DAMAGE), opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        return _read(file, labels_required, others, form)


def _read(file: TextIO, labels_required: bool, others: bool, form: str) -> dict[str, Any]:
    reader = csv.reader(_lines(file), delimiter=CSV_FORMS[form], strict=True)
    value = number_in if form == "en" else _with_comma
    numbers, lines, most = array("d"), array("q"), room(Path(file.name))
    try:
        header = next((row for row in reader if row), None)
        if header is None:
            raise InputError("is empty; the first line must name the columns")
        names, strange = [name.strip() for name in header], list[str]()
        try:
            _check_delimiter(header, form)
            if others:
                names, strange = study_columns(names)
            if ignored := set(strange):
                listed = ", ".join(name[:40] for name in strange)[:200]
                warnings.warn(f"columns that are ignored: {listed}", stacklevel=2)
            columns = find_columns([n for n in names if n not in ignored], labels_required)
        except InputError as error:
            raise InputError(f"line {reader.line_num}: {error}") from None
        models = columns.models
        at = {name: place for place, name in enumerate(names)}
        places = {name: at[name] for scores in models.values() for name in scores.names}
        texts = [(at[name], list[str]()) for name in columns.single]
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                hint = "; a decimal comma?" if len(row) > len(names) and form == "en" else ""
                problem = f"{len(row)} cells for {len(names)} columns{hint}"
                raise InputError(f"line {reader.line_num}: {problem}")
            lines.append(reader.line_num)
            try:
                numbers.extend([value(row[place]) for place in places.values()])
            except ValueError:  # find the column
                for name, place in places.items():
                    _number(row[place], name, lines[-1], value)
            for place, cells in texts:
                cells.append(row[place].strip())
            if 8 * len(numbers) + _TEXT_BYTES * len(lines) * len(texts) > most:
                raise InputError(f"line {lines[-1]}: more than {most >> 20:,} MiB of rows")
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: {error}") from None
    if not numbers:
        raise InputError("has no rows below the column names")
    table = np.frombuffer(numbers, np.float64).reshape(len(lines), -1)
    first = len(models["scores"].names)
    values = {"scores": table[:, :first]}
    if "other" in models:
        values["other"] = table[:, first:]
    for name, (_, cells) in zip(columns.single, texts, strict=True):
        values[name] = _column(name, cells, lines, value)
    return arguments(columns, values, labels_required, lambda row: f"line {lines[row]}")


def _column(
    name: str, cells: list[str], lines: Sequence[int], value: Callable[[str], float]
) -> Any:
    """Return numbers or names from the cells of a column without scores."""
    empty = cells.index("") if "" in cells else None
    if name == "label":
        if not cells[0] or _is_number(cells[0], value) or _is_number(cells[0]):
            numbered = zip(cells, lines, strict=True)
            numbers = np.array([_number(cell, name, line, value) for cell, line in numbered])
            if not (np.abs(numbers) > 2**53).any():  # codes of 18 digits stay as they are written
                return numbers
        elif empty is not None:
            _number("", name, lines[empty], value)
    elif name in IDS:
        return _numbers_or_names(cells)
    return np.array(cells, np.str_)


def _lines(file: TextIO) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise InputError(f"line {number}: longer than {MAX_LINE} characters")
        if "\0" in line:
            raise InputError(f"line {number}: holds a NUL character; is this a text file?")
        yield line


def _check_delimiter(header: list[str], form: str) -> None:
    if form == "de" and len(header) == 1 and "," in header[0]:
        raise InputError("the columns are separated by commas: --csv de is for semicolons")
    for mark, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(header) == 1 and mark in header[0]:
            option = "with decimal commas add --csv de (Python: csv='de'), or " * (mark == ";")
            raise InputError(
                f"the columns are separated by {called}; {option}separate them by commas, and "
                f"write decimals with points (pandas: read_csv(IN, sep={mark!r}, decimal=',')"
                ".to_csv(OUT, index=False))"
            )


def _with_comma(cell: str) -> float:
    return float(number_in(cell.translate(_SWAPPED)))


def _is_number(cell: str, value: Callable[[str], float] = number_in) -> bool:
    try:
        value(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, column: str, line: int, value: Callable[[str], float]) -> float:
    try:
        return value(cell)
    except ValueError:
        mark = "point" if value is number_in else "comma"
        hint = f"; decimals need a {mark}" if _is_number(cell.translate(_SWAPPED), value) else ""
        problem = f"column {column!r} is not a number: {cell[:40]!r}{hint}"
        raise InputError(f"line {line}: {problem}") from None


def _numbers_or_names(names: list[str]) -> Any:
    """Return numbers if all are written as numbers; "007" is a name, distinct from "7"."""
    try:
        numbers = np.array([int(name) for name in names], np.int64)
    except (ValueError, OverflowError):
        return np.array(names, np.str_)
    return numbers if list(map(str, numbers.tolist())) == names else np.array(names, np.str_)
