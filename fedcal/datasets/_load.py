"""`load`: a shipped name or a path, and `from_frame`: a table in memory, to one data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.core.checks import near, one_of
from fedcal.core.classes import ids_of
from fedcal.core.errors import InputError
from fedcal.core.removed import check_kept
from fedcal.core.scores import numbers
from fedcal.datasets._arrays import from_columns
from fedcal.datasets._blocks import BLOCKS
from fedcal.datasets._columns import arguments, find_columns
from fedcal.datasets._csv import CSV_FORMS, read_csv
from fedcal.datasets._dataset import IDS, KEYS, Dataset, Given
from fedcal.datasets._parquet import read_parquet
from fedcal.datasets._shipped import entry_of, feature_sets, load_shipped, shipped_names
from fedcal.storage.atomic import path_of
from fedcal.storage.npz import read_npz


def load(
    name_or_path: str | Path,
    *,
    labels_required: bool = True,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
    others: bool = False,
    csv: str | None = None,
) -> Dataset:
    """Read a shipped data set by name, or a file.

    Parameters
    ----------
    name_or_path
        A shipped name (see `catalogue`; it wins over a file of that name), one of its variants
        as NAME:CORRUPTION:SEVERITY (see `shifted`), or the path of

        * `.npz` with `logits` or `probs` (n, c), `labels` (n,), optional `client`, `subject` and
          `group` (n,), a second model's `other_logits` or `other_probs` (n, c), and `test_logits`
          or `test_probs` (m, c), `test_labels`, `test_client` and `test_group` (m,), and
          `class_names` (c,), of the columns of scores;
        * `.csv` or `.csv.gz` with columns `label`, optional `client`, `subject` and `group`, and
          `logit_0..`, `prob_0..` or, for two classes, `score`: the probability of class 1; of a
          second model `other_logit_0..`, `other_prob_0..` or `other_score`;
        * `.parquet` (needs pyarrow) with the same columns, or a list of c numbers in each row
          of `logits` or `probs`, `other_logits` or `other_probs`.

        A column `split` in all but `.npz` may separate the test part (`test`) from the fit part
        (one of `train`, `fit`, `calibration`, `validation`). Test rows keep their clients if all
        of these own rows of the fit part.
    labels_required
        False lets the labels be missing (`Dataset.labelled` is then False).
    classes, positive
        (c,) names of the classes, and which of two is column 1: see `from_arrays`.
    others
        Ignore columns with other names in a `.csv`, with a warning, and read `patient`,
        `customer` or `person` as `subject`.
    csv
        Form of a `.csv` or `.csv.gz`: "en" (commas between columns, decimal points; the default)
        or "de" (semicolons between columns, decimal commas). InputError for "de" and other data.

    Raises
    ------
    InputError
        If the file or its content is invalid, in one line that begins with the path; see
        `from_arrays` for the conditions on arrays.
    """
    text = str(name_or_path)
    form = "en" if csv is None else one_of("csv", csv, CSV_FORMS)
    if form != "en" and not text.lower().endswith((".csv", ".csv.gz")):
        raise InputError(f"csv {form!r} is for CSV files, and {text[-200:]!r} is not one")
    if BLOCKS in text:  # also behind a folder, where the name was made a full path
        raise InputError(f"{text[-200:]!r}: rows in blocks are for simulate and evaluate")
    if (entry := entry_of(text)) is not None:
        return load_shipped(entry, text).in_order(classes, positive)
    if text in {entry.name for entry in feature_sets()}:
        raise InputError(
            f"{text!r} holds features, not scores; train on it: fedcal train --data {text}"
        )
    path = path_of(name_or_path)
    shown = repr(text if len(text) <= 200 else "..." + text[-200:])
    suffix = next((end for end in _READERS if path.name.lower().endswith(end)), None)
    try:
        is_file, is_there = path.is_file(), path.exists()
        check_kept(f"reading {path.suffix.lower()}")
        if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
            check_kept("reading a folder of datasets.save_to_disk")
    except InputError as error:
        raise InputError(f"{shown}: {error}") from None
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InputError(f"{shown}: {error.strerror}") from None
    if not is_there and suffix is None:
        meant = near(text.partition(":")[0], shipped_names(), "fedcal datasets")
        raise InputError(
            f"unknown data set {shown}; {meant}; or the path of a {_FILES} file; "
            "rows in memory can be given only in Python"
        )
    if not is_file:
        folder = "is not a file"
        if is_there and (inside := _readable(path)):
            folder = f"is a folder; give the path of a file in it, such as {inside}"
        raise InputError(f"{shown}: {folder if is_there else 'no such file'}")
    if suffix is None:
        raise InputError(f"{shown}: unknown kind of file; allowed: {_FILES}")
    read = _READERS[suffix]
    try:
        more: Any = {"others": others, "form": form} if read is read_csv else {}
        columns = read(path, labels_required, **more)
        return from_columns(columns, path.name, labels_required, classes, positive)
    except InputError as error:
        raise InputError(f"{shown}: {error}") from None


def _read_npz(path: Path, labels_required: bool) -> dict[str, Any]:
    """Return arguments for `from_arrays` from an `.npz` file."""
    arrays: dict[str, Any] = read_npz(path)
    for key in arrays:
        one_of("key", key[:80], KEYS)
    columns: dict[str, Any] = {"labels": None} | arrays
    if not labels_required:
        tested = arrays.keys() & {"test_logits", "test_probs"}
        prefixes = ("", "test_") if tested else ("",)
        ids = {k: ids_of(k, v) for k, v in arrays.items() if k.removeprefix("test_") in IDS}
        columns["given"] = Given.of(*({k: ids.get(p + k) for k in IDS} for p in prefixes))
    return columns


_READERS = {".npz": _read_npz, ".csv": read_csv, ".csv.gz": read_csv, ".parquet": read_parquet}
_FILES = ", ".join(_READERS)


def _readable(folder: Path) -> str | None:
    """Return the first file in a folder that `load` can read, quoted, or None."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return None
    known = [name for name in names if name.lower().endswith(tuple(_READERS))]
    return repr(known[0][-80:]) if known else None


def from_frame(
    frame: Any,
    *,
    name: str = "frame",
    labels_required: bool = True,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
) -> Dataset:
    """Make a `Dataset` of a data frame.

    Parameters
    ----------
    frame : DataFrame
        Of pandas or Polars (any object with `columns`, and `to_numpy` of each), with the columns of
        a file of `load`: `label`, `logit_0 ..`, `prob_0 ..` or `score`, or a list in each row
        of `logits` or `probs`; optional `client`, `subject`, `group`, `split`, and a second
        model's scores under the same names after `other_`.
    name : str
        Name of the set in reports.
    labels_required : bool
        False lets the labels be missing.
    classes, positive : optional
        Names of the classes, and which of two is column 1: see `from_arrays`.

    Raises
    ------
    InputError
        One line: columns that are unknown, missing or incompatible, or an error of `from_arrays`.
    """
    chosen = find_columns([str(column) for column in frame.columns], labels_required, lists=True)
    arrays = {str(name): frame[name].to_numpy() for name in frame.columns}
    values = {name: arrays[name] for name in chosen.single}
    for model, scores in chosen.models.items():
        if scores.listed:
            (column,) = scores.names
            values[model] = numbers(column, list(arrays[column]))
        else:
            values[model] = np.column_stack([numbers(k, arrays[k]) for k in scores.names])
    if "split" in values:
        values["split"] = np.array([str(part) for part in values["split"]])
    columns = arguments(chosen, values, labels_required)
    return from_columns(columns, name, labels_required, classes, positive)
