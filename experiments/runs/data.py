"""Data sets for worker processes: arrays in a folder, mapped into memory that all of them share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.datasets import IDS, Dataset

_ARRAYS = ("scores", "labels", *IDS, "test_scores", "test_labels")


def arrays_of(data: Dataset) -> Mapping[str, np.ndarray[Any, Any]]:
    """The arrays of a data set by the names of its fields, without those that are None."""
    return {k: a for k in _ARRAYS if (a := getattr(data, k)) is not None}


def digest_of(data: Dataset) -> str:
    """SHA-256 of everything that a run reads.

    Not to be published: who knows all rows but one can find the last one by it.
    """
    digest = hashlib.sha256()
    digest.update(repr((data.input, data.client_names)).encode())
    for name, array in arrays_of(data).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_data(folder: Path, data: Dataset) -> None:
    """Write a checked data set into a new folder."""
    folder.mkdir()
    for name, array in arrays_of(data).items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
    facts = {k: getattr(data, k) for k in ("name", "input", "client_names")}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


def read_data(folder: Path) -> Dataset:
    """What `write_data` wrote. Its arrays are read-only."""
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text("utf-8"))
    if facts["client_names"] is not None:
        facts["client_names"] = tuple(facts["client_names"])
    arrays: dict[str, Any] = {
        path.stem: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        for path in folder.glob("*.npy")
    }
    return Dataset(**facts, **arrays)
