"""Images and texts as they lie on disk, for `fedcal features`."""

from __future__ import annotations

import csv
import gzip
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.printable import value_of
from fedcal.datasets import IDS
from fedcal.experiments.training.extraction.extract import Source
from fedcal.experiments.training.images import class_folders, named, read_folder, read_images
from fedcal.experiments.training.rows import LabelledRows
from fedcal.storage.atomic import path_of

TABLES = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
"""Endings of tables of texts -> what is between columns."""

TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


def kind_of(path: Path) -> str:
    """Return "text" or "image", by the path's ending."""
    return "text" if path.name.lower().endswith(tuple(TABLES)) else "image"


def read_source(path: Path) -> Source:
    """Images or texts with their labels.

    Parameters
    ----------
    path
        Images: `.npz` with `x`, `y`, optional `client`, and `test_x`, `test_y`, `test_client`; a
        folder with a folder of images per class, or with two such folders, `train` and `test`; or
        a tar of such a folder. Texts: a table (`.csv`, `.tsv`, also `.gz`) with columns `text` and
        `label`, optional `client`, `subject`, `group`, and `split`, whose `test` marks test rows

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    path = path_of(path)
    with named(str(path)):
        if path.is_dir():
            return _folder(path)
        if not path.exists():
            raise InputError("no such file or folder")
        if kind_of(path) == "text":
            return _table(path)
        if path.name.lower().endswith(TARS):
            return _tar(path)
        if path.suffix.lower() == ".npz":
            return _of_parts(*read_images(path))
        raise InputError(
            f"unknown kind of data; allowed: .npz, folder, {', '.join(TARS)}, {', '.join(TABLES)}"
        )


def _labels(y: NDArray[Any], names: Sequence[str] | None) -> NDArray[Any]:
    """Return labels that mean the same with these names, which may be numbers."""
    plain = names is None or value_of(names[0]) is None
    return y.astype(np.uint16) if plain else np.array(names)[y]


def _of_parts(rows: LabelledRows, test: LabelledRows | None = None) -> Source:
    columns: dict[str, NDArray[Any]] = {}
    parts = {"": rows} if test is None else {"": rows, "test_": test}
    for prefix, part in parts.items():
        if part.x.dtype != np.uint8:
            raise InputError(f"images must be uint8 (0..255), got {part.x.dtype}")
        columns[f"{prefix}labels"] = _labels(part.y, rows.names)
        if part.client is not None:
            columns[f"{prefix}client"] = part.client
    if rows.names is not None:
        columns["class_names"] = np.array(rows.names)
    return Source({prefix: part.x for prefix, part in parts.items()}, columns)


def _folder(path: Path) -> Source:
    if set(class_folders(path)) == {"train", "test"}:
        train, test = (read_folder(path / part) for part in ("train", "test"))
        if train.names != test.names:
            raise InputError("train and test have different classes (names of their folders)")
        if train.x.shape[1:] != test.x.shape[1:]:
            raise InputError("images of train and test have different sizes")
        return _of_parts(train, test)
    return _of_parts(read_folder(path))


def _tar(path: Path) -> Source:
    with tempfile.TemporaryDirectory() as unpacked:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(unpacked, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise InputError(f"is not an intact tar of images ({type(error).__name__})") from None
        return _folder(Path(unpacked))


def _table(path: Path) -> Source:
    end = next(end for end in sorted(TABLES, key=len) if path.name.lower().endswith(end))
    opened: Any = gzip.open if end.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as lines:
            table = list(csv.reader(lines, delimiter=TABLES[end], strict=True))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is not an intact table in UTF-8 ({type(error).__name__})") from None
    heading, rows = (table[0], table[1:]) if table else ([], [])
    for name in ("text", "label"):
        if heading.count(name) != 1:
            raise InputError(f"needs one column {name!r}; the columns are {heading[:20]}")
    if bad := [k for k, row in enumerate(rows, start=2) if len(row) != len(heading)]:
        raise InputError(f"row {bad[0]} has not {len(heading)} columns")
    if not rows:
        raise InputError("has no rows")
    column = {name: [row[j] for row in rows] for j, name in enumerate(heading)}
    names, labels = np.unique(np.array(column["label"]), return_inverse=True)
    test = np.array([part == "test" for part in column.get("split", [""] * len(rows))])
    parts, columns = {}, {"class_names": names}
    for prefix, chosen in (("", ~test), ("test_", test)):
        if not chosen.any():
            continue
        parts[prefix] = [column["text"][row] for row in np.flatnonzero(chosen)]
        columns[f"{prefix}labels"] = _labels(labels[chosen], names.tolist())
        for name in IDS:
            if name in column and (prefix, name) != ("test_", "subject"):
                columns[f"{prefix}{name}"] = np.array(column[name])[chosen]
    if "" not in parts:
        raise InputError("all rows are test rows")
    return Source(parts, columns)
