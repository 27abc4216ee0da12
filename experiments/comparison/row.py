"""One run of a comparison as one line of JSON: the same function for every pool of workers."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcal.datasets import IDS, Dataset
from fedcal.errors import FedcalError
from fedcal.experiments.comparison.grid import Cell
from fedcal.experiments.config import merge
from fedcal.experiments.result import versions
from fedcal.experiments.simulation import simulate
from fedcal.experiments.terminal import SHOWN

Row = dict[str, Any]
"""`run` (the request, resolved), `versions`, and either `error` or the results.

Rows are published: nothing in them follows from the fit rows but what a release gives away."""

Run = dict[str, Any]
"""A request in plain values: a `Config` without what is unset; infinity is "inf"."""

_PRIVACY = (
    *("unit", "adjacency", "trust", "epsilon", "delta", "mechanism", "noise_std"),
    *("noise_source", "releases"),
)
_COMMUNICATION = ("bytes_up_per_client", "bytes_down_per_client", "rounds")
_LARGEST = 1e100
"""No number of a result is larger; the squares of such numbers are finite."""


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


def run_row(run: Run, data: Dataset) -> Row:
    """Run one cell with one seed.

    Parameters
    ----------
    run : from `runs_of`
    data : what `run["data"]` names

    Returns
    -------
    Row
        A run that fails in operation (nobody answered) is a row, too: it holds `error`.
    """
    row: Row = {"run": run, "versions": versions()}
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
    """A row that was read from a file, if it is whole; ValueError otherwise."""
    if not isinstance(row, dict) or not isinstance(row.get("run"), dict):
        raise ValueError("no run")
    if not isinstance(row.get("versions"), dict):
        raise ValueError("no versions")
    if isinstance(row.get("error"), str):
        return row
    parts: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(("before", "after"), tuple(SHOWN)),
        "privacy": _PRIVACY,
        "communication": _COMMUNICATION,
    }
    for part, keys in parts.items():
        if not isinstance(row.get(part), dict) or set(row[part]) != set(keys):
            raise ValueError(f"{part} lacks a key, or has one too many")
    std = row["privacy"]["noise_std"]
    noise = std if isinstance(std, list) and std else [0.0 if std is None else std]
    seconds = [] if row.get("seconds", 0) is None else [row.get("seconds")]  # None: a secret
    real = [*seconds, *row["before"].values(), *row["after"].values(), *noise]
    if not all(type(n) is float and abs(n) <= _LARGEST for n in real):
        raise ValueError("seconds, a metric or noise_std is no finite number")
    sent = row["communication"].values()
    if not all(type(n) is int and 0 <= n <= _LARGEST for n in sent):
        raise ValueError("communication is not in whole numbers")
    return row


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


_ARRAYS = ("scores", "labels", *IDS, "test_scores", "test_labels")


def arrays_of(data: Dataset) -> Mapping[str, np.ndarray[Any, Any]]:
    """The arrays of a data set by the names of its fields, without those that are None."""
    return {k: a for k in _ARRAYS if (a := getattr(data, k)) is not None}
