"""Reading `.csv` and `.csv.gz`: one labelled row per line, columns by name."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedcal.datasets._dataset import RANGE_TOLERANCE
from fedcal.errors import InputError
from fedcal.npz import MAX_BYTES

MAX_LINE = 2**24
"""Characters in a line; a packed file without line ends must not fill the memory."""

_CLIENT_BYTES = 64  # about what one short string takes
_SCORE = re.compile(r"(logit|prob)_(0|[1-9][0-9]{0,8})")
_ALLOWED = "label, client, logit_0.. or prob_0.. (two classes: score)"


@dataclass(frozen=True)
class _Columns:
    names: list[str]
    kind: str  # "logit", "prob" or "score"
    scores: list[int]  # places of the score columns, class 0 first
    label: int | None
    client: int | None


def read_csv(path: Path, labels_required: bool) -> dict[str, Any]:
    """Arguments for `from_arrays` from a `.csv` or `.csv.gz` file.

    Columns, in any order: `label`; optional `client`; and `logit_0 .. logit_{c-1}`,
    `prob_0 .. prob_{c-1}`, or for two classes `score`, the probability of class 1.
    Blank lines are skipped. `client` is numeric if all its cells are whole numbers.

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
    scores, labels, clients = array("d"), array("d"), list[str]()
    try:
        header = next(reader, None)
        if header is None:
            raise InputError("is empty; the first line must name the columns")
        columns = _columns(header, labels_required)
        for row in reader:
            if not row:
                continue
            where = f"line {reader.line_num}"
            if len(row) != len(columns.names):
                raise InputError(f"{where}: {len(row)} cells for {len(columns.names)} columns")
            try:
                scores.extend([float(row[place]) for place in columns.scores])
            except ValueError:  # now find out which
                for place in columns.scores:
                    _number(row[place], columns.names[place], where)
            if columns.kind == "score" and not (
                -RANGE_TOLERANCE <= scores[-1] <= 1 + RANGE_TOLERANCE
            ):
                raise InputError(f"{where}: score must lie in [0, 1], got {scores[-1]:g}")
            if columns.label is not None:
                labels.append(_number(row[columns.label], "label", where))
            if columns.client is not None:
                clients.append(row[columns.client].strip())
            if 8 * len(scores) + _CLIENT_BYTES * len(clients) > MAX_BYTES:
                raise InputError(f"{where}: more than {MAX_BYTES >> 30} GiB of rows")
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: {error}") from None
    if not scores:
        raise InputError("has no rows below the column names")
    x = np.frombuffer(scores, np.float64).reshape(-1, len(columns.scores))
    if columns.kind == "score":
        x = np.concatenate([1 - x, x], axis=1)
    return {
        "logits" if columns.kind == "logit" else "probs": x,
        "labels": None if columns.label is None else np.frombuffer(labels, np.float64),
        "client": None if columns.client is None else _clients(clients),
    }


def _lines(file: TextIO) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise InputError(f"line {number}: longer than {MAX_LINE} characters")
        if "\0" in line:
            raise InputError(f"line {number}: holds a NUL character; is this a text file?")
        yield line


def _columns(header: list[str], labels_required: bool) -> _Columns:
    names = [name.strip() for name in header]
    found: dict[str, dict[int, int]] = {}
    single: dict[str, int] = {}
    for place, name in enumerate(names):
        match = _SCORE.fullmatch(name)
        if match is not None:
            places = found.setdefault(match[1], {})
            if int(match[2]) in places:
                raise InputError(f"line 1: column {name!r} is there twice")
            places[int(match[2])] = place
        elif name in single:
            raise InputError(f"line 1: column {name!r} is there twice")
        elif name in ("label", "client", "score"):
            single[name] = place
        else:
            raise InputError(f"line 1: unknown column {name[:80]!r}; allowed: {_ALLOWED}")
    kinds = [*found, *(["score"] if "score" in single else [])]
    if len(kinds) != 1:
        problem = f"{' and '.join(kinds)} columns together" if kinds else "no score columns"
        raise InputError(f"line 1: {problem}; allowed: {_ALLOWED}")
    if labels_required and "label" not in single:
        raise InputError("line 1: column 'label' is missing")
    kind = kinds[0]
    if kind == "score":
        scores = [single["score"]]
    else:
        places = found[kind]
        missing = next((j for j in range(len(places)) if j not in places), None)
        if missing is not None:
            raise InputError(f"line 1: column '{kind}_{missing}' is missing")
        scores = [places[j] for j in range(len(places))]
    return _Columns(names, kind, scores, single.get("label"), single.get("client"))


def _number(cell: str, column: str, where: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise InputError(f"{where}: column {column!r} holds no number: {cell[:40]!r}") from None


def _clients(names: list[str]) -> Any:
    try:
        return np.array([int(name) for name in names], np.int64)
    except (ValueError, OverflowError):
        return np.array(names, np.str_)
