"""The other end of `pools.in_processes`: a run on a line in, its row on a line out.

Data sets for it are arrays in a folder, mapped into memory that all workers share.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.datasets import IDS, Dataset

_ARRAYS = (
    *("scores", "labels", *IDS, "other_scores"),
    *("test_scores", "test_labels", "test_client", "test_group"),
)
_FACTS = ("name", "input", "client_names", "group_names", "other_input")


def arrays_of(data: Dataset) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the arrays of a data set by the names of its fields, without those that are None."""
    return {k: a for k in _ARRAYS if (a := getattr(data, k)) is not None}


def digest_of(data: Dataset) -> str:
    """SHA-256 of everything that a run reads.

    Not to be published: who knows all rows but one can find the last one by it.
    """
    digest = hashlib.sha256()
    digest.update(repr((data.input, data.client_names)).encode())
    if data.group_names is not None or data.other_input is not None:
        digest.update(repr((data.group_names, data.other_input)).encode())
    for name, array in arrays_of(data).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_data(folder: Path, data: Dataset) -> None:
    """Write a checked data set into a new folder."""
    folder.mkdir()
    for name, array in arrays_of(data).items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
    facts = {k: getattr(data, k) for k in _FACTS}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


def read_data(folder: Path) -> Dataset:
    """Return the data set that `write_data` wrote. Its arrays are read-only."""
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text("utf-8"))
    for key in ("client_names", "group_names"):
        if facts[key] is not None:
            facts[key] = tuple(facts[key])
    arrays: dict[str, Any] = {
        path.stem: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        for path in folder.glob("*.npy")
    }
    return Dataset(**facts, **arrays)


def serve(folder: str, names: str, work: str) -> None:
    """Answer runs until nobody sends them any more.

    Parameters
    ----------
    folder
        data set k is in its folder k, as `write_data` wrote it. Removed at the end: who
        sends no more, but has not ended us, was killed
    names
        JSON, the list of data sets
    work
        "MODULE:NAME" of the function that makes a row of a run and its data
    """
    module, _, function = work.partition(":")
    row_of = getattr(importlib.import_module(module), function)
    places = {name: Path(folder, str(k)) for k, name in enumerate(json.loads(names))}
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a package prints is no answer

    @cache
    def source(name: str) -> Dataset:
        return read_data(places[name])

    for line in sys.stdin:
        run = json.loads(line)
        row = json.dumps(row_of(run, source(run["data"])), allow_nan=False)
        try:
            print(row, file=answers, flush=True)
        except BrokenPipeError:
            break
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)  # without a word about what could not be sent
