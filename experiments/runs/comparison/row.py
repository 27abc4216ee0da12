"""One run of a comparison as one line of JSON: the same function for every pool of workers."""

from __future__ import annotations

import math
import warnings
from typing import Any

from fedcal.core.errors import FedcalError
from fedcal.datasets import Dataset
from fedcal.experiments.report.families import family_of
from fedcal.experiments.runs.comparison.grid import Cell
from fedcal.experiments.runs.config import merge
from fedcal.experiments.runs.result import versions
from fedcal.experiments.runs.simulation import simulate
from fedcal.experiments.runs.sweep import Row, Run

_METRICS = {str: float}
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
"""A row in plain values, in the terms of `_has_form`.

Rows are published: nothing in them follows from the fit rows but what a release gives away."""


_LARGEST = 1e100
"""No number of a row is larger; the squares of such numbers are finite."""


def runs_of(cell: Cell) -> list[Run]:
    """Return the requests of a resolved cell, one for each seed, as strict JSON can hold them."""
    plain = cell.config.to_dict()
    del plain["engine"]  # all engines give the same bits
    if math.isinf(cell.config.epsilon):
        plain["epsilon"] = "inf"
    return [plain | {"seed": seed} for seed in cell.seeds]


def run_row(run: Run, data: Dataset) -> Row:
    """Run one cell with one seed.

    Parameters
    ----------
    run
        from `runs_of`
    data
        what `run["data"]` names

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
            before, after = family_of([config.method]).told(result)
        except FedcalError as e:
            return row | {"error": " ".join(str(e).split())}
    return row | {
        "before": before,
        "after": after,
        "privacy": {k: result.privacy[k] for k in _PRIVACY},
        "communication": result.communication,
        "seconds": result.seconds,
    }


def check_row(row: Any) -> Row:
    """Return a row that was read from a file if it is complete; ValueError otherwise."""
    if not any(_has_form(row, form) for form in (_RESULT, _FAILURE)):
        raise ValueError("not a row")
    whole = {*family_of([str(row["run"].get("method"))]).complete}
    if "error" not in row and whole and not row["before"].keys() == row["after"].keys() == whole:
        raise ValueError("not a row")
    complete: Row = row
    return complete


def _has_form(value: Any, form: Any) -> bool:
    """Return whether a value read from JSON has a given form.

    Parameters
    ----------
    form
        a type (`float` and `int`: finite, and `int` not negative); None; a dict: these keys (`str`:
        any), values of these forms; a list of one form: one or more of it; a tuple: one of these
    """
    if isinstance(form, dict):
        if isinstance(value, dict) and str in form:
            form = dict.fromkeys(value, form[str])
        if not isinstance(value, dict) or value.keys() != form.keys():
            return False
        return all(_has_form(value[key], part) for key, part in form.items())
    if isinstance(form, list):
        return isinstance(value, list) and value != [] and all(_has_form(v, form[0]) for v in value)
    if isinstance(form, tuple):
        return any(_has_form(value, part) for part in form)
    if form in (float, int):
        least = 0 if form is int else -_LARGEST
        return type(value) is form and least <= value <= _LARGEST
    return value is None if form is None else isinstance(value, form)
