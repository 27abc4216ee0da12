"""Data of Hugging Face's `datasets`: its saved folders, and its objects in memory.

A saved folder is read with pyarrow alone: Arrow files and a little JSON. Nothing is looked up on a
hub, cached or unpickled, and the package `datasets` need not be installed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.datasets._arrays import from_columns
from fedcal.datasets._arrow import BATCH, damage, read_batches
from fedcal.datasets._columns import PARTS, TEST, find_columns, fit_name, known_clients
from fedcal.datasets._dataset import IDS, Dataset, Given
from fedcal.storage.npz import intact

MAX_JSON = 2**20
"""Bytes in a description of a saved folder."""

_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_END = b"\xff\xff\xff\xff\0\0\0\0"  # end of an Arrow stream; a stream cut between batches lacks it
_FOLDER = "an intact folder of datasets.save_to_disk"


def from_huggingface(
    data: Any,
    *,
    logits: str | None = None,
    probs: str | None = None,
    labels: str = "label",
    client: str | None = "client",
    subject: str | None = "subject",
    group: str | None = "group",
    other_logits: str | None = None,
    other_probs: str | None = None,
    name: str = "huggingface",
    labels_required: bool = True,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
) -> Dataset:
    """Make a `Dataset` of a `datasets.Dataset` or a `datasets.DatasetDict` with a model's scores.

    Parameters
    ----------
    data
        A `datasets.Dataset`, or a mapping from names of splits to such objects: `test` is the
        test part, and one of `train`, `fit`, `calibration` and `validation` the fit part. For a
        `flwr_datasets.FederatedDataset` give what its `load_split("train")` returns, and
        simulate with `partition="flwr:..."`.
    logits, probs
        The column of scores, a list of c numbers in each row; at most one of the two. Without
        either the columns are found as in a file: `logits`, `probs`, `logit_0 ..`, `prob_0 ..`
        or `score`. All other columns are ignored, and not decoded.
    labels, client, subject, group
        The columns of labels and, where they exist, of natural clients, of subjects and of
        groups; None = no such column.
    other_logits, other_probs
        The column of a second model's scores, like `logits` and `probs`; without either they are
        found as in a file unless `logits` or `probs` is given.
    name
        Name of the set in reports.
    labels_required
        False lets the labels be missing.
    classes, positive
        (c,) names of the classes, and which of two is column 1: see `from_arrays`.

    Returns
    -------
    Dataset
        The scores are copied, to float64.

    Raises
    ------
    InputError
        One line: another type of object, columns that are missing or incompatible, or an error of
        `from_arrays`.
    """
    for prefix, pair in (("", (logits, probs)), ("other_", (other_logits, other_probs))):
        if None not in pair:
            raise InputError(
                f"{name}: both {prefix}logits and {prefix}probs are given; give one of them"
            )
    ids = zip((client, subject, group), IDS, strict=True)
    scores = ((logits, "logits"), (probs, "probs"))
    others = ((other_logits, "other_logits"), (other_probs, "other_probs"))
    pairs = ((labels, "label"), *ids, *scores, *others)
    renames = [(column, meant) for column, meant in pairs if column is not None]
    called = dict(renames)
    if len(called) < len(renames):
        roles = ", ".join(("scores", "labels", *IDS))
        raise InputError(f"{name}: one column cannot have two of the roles {roles}")
    pa = need("pyarrow", "parquet", "reading Hugging Face data")

    try:
        parts = data if isinstance(data, Mapping) else {"": data}
        for part in parts.values():
            _check_object(part)
        with intact(damage(pa, "an intact dataset")):
            read = partial(_from_object, pa, called, labels_required)
            arrays = _joined(list(parts), lambda key: read(parts[key]))
        features = getattr(next(iter(parts.values())), "features", None) or {}
        _name_classes(arrays, getattr(features.get(labels), "names", None))
        return from_columns(arrays, name, labels_required, classes, positive)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _name_classes(arguments: dict[str, Any], known: Any) -> None:
    """Add the names of a `ClassLabel` if the columns have none and their number fits."""
    scores: Any = arguments.get("logits", arguments.get("probs"))
    fits = isinstance(known, list) and len(known) == np.shape(scores)[1]
    if fits and arguments.get("class_names") is None:
        arguments["class_names"] = tuple(map(str, known))


def is_saved(folder: Path) -> bool:
    """Return whether `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote this folder."""
    return (folder / _DICT).is_file() or (folder / _STATE).is_file()


def read_saved(folder: Path, labels_required: bool) -> dict[str, Any]:
    """Return arguments for `from_arrays` from a folder of `Dataset` or `DatasetDict.save_to_disk`.

    Columns are as in a `.parquet` file; all others are ignored. The splits of a `DatasetDict`
    are parts as in `from_huggingface`.

    Raises InputError, one line: pyarrow is missing, or the folder is invalid.
    """
    pa = need("pyarrow", "parquet", "reading a saved Hugging Face dataset")
    with intact(damage(pa, _FOLDER)):
        if not (folder / _DICT).is_file():
            return _from_folder(pa, folder, labels_required)
        splits = _json(folder / _DICT).get("splits")
        if not isinstance(splits, list) or not all(isinstance(key, str) for key in splits):
            raise InputError(f"{_DICT} names no splits")
        return _joined(splits, lambda key: _from_folder(pa, folder / key, labels_required))


def _joined(splits: list[str], read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of a fit part and a test part together; a split `""` has all rows."""
    if splits == [""]:
        return read("")
    for key in splits:
        one_of("split", str(key)[:80], PARTS)
    fit = read(fit_name(splits))
    if TEST in splits:
        test = read(TEST)
        if "given" in fit:
            fit["given"] = Given.of(fit["given"].ids, test["given"].ids)
        fit["test_client"] = known_clients(fit["client"], test["client"])
        for key, value in test.items():
            if key in ("logits", "probs", "labels", "group"):
                fit[f"test_{key}"] = value
    return fit


def _from_folder(pa: Any, folder: Path, labels_required: bool) -> dict[str, Any]:
    state = _json(folder / _STATE)
    if state.get("_indices_data_files"):
        raise InputError("was saved by an old version of datasets; load it there and save again")
    try:
        files = [folder / entry["filename"] for entry in state["_data_files"]]
        plain = all(file.parent == folder and file.suffix == ".arrow" for file in files)
    except (KeyError, TypeError):
        plain = False
    if not plain or not files:
        raise InputError(f"{_STATE} names no .arrow files in its folder")
    names = _column_names(pa, files[0])
    columns = find_columns(names, labels_required, lists=True, others=True)
    if (folder.parent / _DICT).is_file():  # the split is the folder's name
        columns = replace(columns, single=[n for n in columns.single if n != "split"])

    def batches() -> Iterator[Any]:
        options = pa.ipc.IpcReadOptions(included_fields=sorted(map(names.index, columns.used)))
        for file in files:
            if _column_names(pa, file) != names:
                raise InputError(f"{file.name} has other columns than {files[0].name}")
            with (
                pa.OSFile(str(file)) as source,
                pa.ipc.open_stream(source, options=options) as stream,
            ):
                yield from stream

    arrays = read_batches(pa, batches(), columns, labels_required)
    if (folder / _INFO).is_file():
        label = (_json(folder / _INFO).get("features") or {}).get("label")
        _name_classes(arrays, label.get("names") if isinstance(label, dict) else None)
    return arrays


def _column_names(pa: Any, file: Path) -> list[str]:
    with file.open("rb") as raw:
        raw.seek(-min(len(_END), file.stat().st_size), os.SEEK_END)
        if raw.read() != _END:
            raise InputError(f"{file.name} is truncated or damaged")
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as stream:
        names: list[str] = stream.schema.names
        return names


def _json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_JSON:
        raise InputError(f"{path.name}: more than {MAX_JSON >> 20} MiB")
    try:
        value = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(f"{path.name} is not JSON with names and values")
    return value


def _check_object(part: Any) -> None:
    if hasattr(part, "load_split"):
        raise InputError('is a FederatedDataset; give its load_split("train")')
    if not all(hasattr(part, name) for name in ("with_format", "column_names")):
        raise InputError(
            f"holds a {type(part).__name__}; must be a datasets.Dataset or DatasetDict"
        )
    if not hasattr(part, "num_rows"):
        raise InputError("is an IterableDataset; load it without streaming")


def _from_object(
    pa: Any, called: Mapping[str, str], labels_required: bool, part: Any
) -> dict[str, Any]:
    there = list(part.column_names)
    for column, meant in called.items():
        optional = column == meant and meant in IDS
        optional |= meant == "label" and not labels_required
        if column not in there and not optional:
            raise InputError(f"no column {column!r}; there are: {', '.join(there)[:200]}")
    asked = "logits" in called.values() or "probs" in called.values()
    same = {"split"} if asked else set(there) - {"label", *IDS}
    names = {key: called.get(key, key if key in same else "") for key in there}  # as in a file
    columns = find_columns(list(names.values()), labels_required, lists=True, others=True)
    used = [key for key, name in names.items() if name in columns.used]

    def batches() -> Iterator[Any]:
        for table in part.with_format("arrow", columns=used).iter(batch_size=BATCH):
            renamed = table.rename_columns([names[key] for key in table.column_names])
            yield from renamed.combine_chunks().to_batches()

    return read_batches(pa, batches(), columns, labels_required)
