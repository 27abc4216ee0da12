"""One run of a comparison as one line of JSON: the same function for every pool of workers."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.comparison.grid import Cell
from experiments.config import merge
from experiments.result import versions
from experiments.simulation import simulate
from fedcal.datasets import Dataset
from fedcal.errors import FedcalError

Row = dict[str, Any]
"""`run` (the request, resolved), `data_sha256`, `versions`, and either `error` or the results."""

Run = dict[str, Any]
"""A request in plain values: a `Config` without what is unset; infinity is "inf"."""

_PRIVACY = (
    *("unit", "adjacency", "trust", "epsilon", "delta", "mechanism", "noise_std"),
    *("noise_source", "releases"),
)
_RESULTS = ("before", "after", "privacy", "communication", "seconds")


def runs_of(cell: Cell) -> list[Run]:
    """The requests of a resolved cell, one for each seed, as strict JSON can hold them."""
    plain = cell.config.to_dict()
    del plain["engine"]  # all engines give the same bits
    if math.isinf(cell.config.epsilon):
        plain["epsilon"] = "inf"
    return [plain | {"seed": seed} for seed in cell.seeds]


def key_of(run: Run) -> str:
    """Equal for equal requests."""
    return json.dumps(run, sort_keys=True, allow_nan=False)


def run_row(run: Run, data: Dataset, digest: str) -> Row:
    """Run one cell with one seed.

    Parameters
    ----------
    run : from `runs_of`
    data : what `run["data"]` names
    digest : of `data`, see `digest_of`

    Returns
    -------
    Row
        A run that fails in operation (nobody answered) is a row, too: it holds `error`.
    """
    row: Row = {"run": run, "data_sha256": digest, "versions": versions()}
    config = merge({**run, "epsilon": float(run["epsilon"])})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said once for all runs, before they begin
        try:
            result = simulate(data, config=config)
        except FedcalError as e:
            return row | {"error": " ".join(str(e).split())}
    privacy = {k: result.privacy[k] for k in _PRIVACY}
    return row | {
        "before": result.before,
        "after": result.after,
        "privacy": privacy,
        "communication": result.communication,
        "seconds": result.seconds,
    }


def check_row(row: Any) -> Row:
    """A row that was read from a file, if it is one; ValueError otherwise."""
    if not isinstance(row, dict) or not isinstance(row.get("run"), dict):
        raise ValueError("no run")
    if not isinstance(row.get("data_sha256"), str) or not isinstance(row.get("versions"), dict):
        raise ValueError("no data_sha256 or no versions")
    if isinstance(row.get("error"), str):
        return row
    for part in _RESULTS[:-1]:
        if not isinstance(row.get(part), dict):
            raise ValueError(f"no {part}")
    numbers = [row.get("seconds"), *row["before"].values(), *row["after"].values()]
    if not all(isinstance(n, (int, float)) for n in numbers):
        raise ValueError("a metric is no number")
    return row


def digest_of(data: Dataset) -> str:
    """SHA-256 of everything that a run reads."""
    digest = hashlib.sha256()
    digest.update(repr((data.input, data.client_names)).encode())
    for name, array in arrays_of(data).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


_ARRAYS = ("scores", "labels", "client", "test_scores", "test_labels")


def arrays_of(data: Dataset) -> Mapping[str, np.ndarray[Any, Any]]:
    """The arrays of a data set by the names of its fields, without those that are None."""
    return {k: a for k in _ARRAYS if (a := getattr(data, k)) is not None}
