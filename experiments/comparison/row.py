"""One run of a comparison as one line of JSON: the same function for every pool of workers."""

from __future__ import annotations

import math
import warnings
from typing import Any

from fedcal.datasets import Dataset
from fedcal.errors import FedcalError
from fedcal.experiments.comparison.grid import Cell
from fedcal.experiments.config import merge
from fedcal.experiments.result import versions
from fedcal.experiments.runs import Row, Run
from fedcal.experiments.runs.forms import has_form
from fedcal.experiments.simulation import simulate
from fedcal.experiments.terminal import SHOWN

_METRICS = dict.fromkeys(SHOWN, float)
_PRIVACY = (
    *("unit", "adjacency", "trust", "epsilon", "delta", "mechanism", "noise_std"),
    *("noise_source", "releases"),
)
_FAILURE = {"run": dict, "versions": dict, "error": str}
_RESULT = {
    "run": dict,
    "versions": dict,
    "before": _METRICS,
    "after": _METRICS,
    "privacy": dict.fromkeys(_PRIVACY, object) | {"noise_std": (None, float, [float])},
    "communication": dict.fromkeys(("bytes_up_per_client", "bytes_down_per_client", "rounds"), int),
    "seconds": (None, float),  # None where who is sampled is secret
}
"""A row in plain values, in the terms of `has_form`.

Rows are published: nothing in them follows from the fit rows but what a release gives away."""


def runs_of(cell: Cell) -> list[Run]:
    """The requests of a resolved cell, one for each seed, as strict JSON can hold them."""
    plain = cell.config.to_dict()
    del plain["engine"]  # all engines give the same bits
    if math.isinf(cell.config.epsilon):
        plain["epsilon"] = "inf"
    return [plain | {"seed": seed} for seed in cell.seeds]


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
    return row | {
        "before": result.before,
        "after": result.after,
        "privacy": {k: result.privacy[k] for k in _PRIVACY},
        "communication": result.communication,
        "seconds": result.seconds,
    }


def check_row(row: Any) -> Row:
    """A row that was read from a file, if it is whole; ValueError otherwise."""
    if not any(has_form(row, form) for form in (_RESULT, _FAILURE)):
        raise ValueError("not a row")
    found: Row = row
    return found
