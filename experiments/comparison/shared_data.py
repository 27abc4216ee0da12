"""Data sets for worker processes: arrays in a folder, mapped into memory that all of them share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedcal.datasets import Dataset
from fedcal.experiments.comparison.row import arrays_of


def write_data(folder: Path, data: Dataset) -> None:
    """Write a checked data set into a new folder."""
    folder.mkdir()
    for name, array in arrays_of(data).items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
    facts = {k: getattr(data, k) for k in ("name", "input", "client_names")}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


def read_data(folder: Path) -> Dataset:
    """What `write_data` wrote. Its arrays are read-only."""
    facts = json.loads((folder / "facts.json").read_text("utf-8"))
    names = facts["client_names"]
    arrays = {
        path.stem: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        for path in folder.glob("*.npy")
    }
    return Dataset(
        name=facts["name"],
        input=facts["input"],
        client_names=None if names is None else tuple(names),
        **arrays,
    )
