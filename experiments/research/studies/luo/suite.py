"""A cell: one point of a sweep on one data set; and many of them, in processes or on Ray."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedcal.core.checks import InputError, one_of, whole
from fedcal.core.numerics import Floats, Purpose, check_seed, stream
from fedcal.datasets import Dataset
from fedcal.experiments.research.studies.luo.methods import (
    BASELINES,
    COLUMNS,
    PRIVATE,
    Competitor,
    Draws,
    competitor,
)
from fedcal.experiments.research.studies.luo.settings import (
    SUITES,
    SweepPoint,
    fitting,
    suite_for,
)
from fedcal.experiments.research.studies.luo.trials import Tables, Trials, divisions, rows_of
from fedcal.experiments.runs.files import to_json, write_folder
from fedcal.experiments.runs.load import load_any
from fedcal.experiments.runs.result import versions
from fedcal.experiments.runs.sweep import (
    CONFIG,
    ROWS,
    Journal,
    Row,
    Run,
    digest_of,
    pool_of,
    run_all,
)
from fedcal.strategies.server.outcome import Progress

_BLOCK = 50  # trials at a time; their sums are exact, so this changes no bit


def run_point(
    tables: Tables, point: SweepPoint, columns: Sequence[Competitor], trials: int, seed: int
) -> Mapping[str, Floats]:
    """Test ECE of each trial, by key of the column.

    All columns see the same divisions; each has noise of its own. What a column gives does not
    depend on which others there are.
    """
    fit = divisions(tables, point, trials, seed)
    draws = {}
    for c in columns:
        if c.method in PRIVATE:
            plan = PRIVATE[c.method].plan(point, tables.classes, c.noise)
            what = f"luo {tables.name} {point.name} {c.key}"
            draws[c.key] = Draws.under(plan, trials, stream(seed, Purpose.NOISE, what=what))
    found = {c.key: np.empty(trials) for c in columns}
    for i in range(0, trials, _BLOCK):
        some = slice(i, i + _BLOCK)
        block = Trials(tables, point, fit[some])
        for c in columns:
            if c.method in BASELINES:
                found[c.key][some] = BASELINES[c.method](block)
            else:
                found[c.key][some] = PRIVATE[c.method].run(block, draws[c.key].some(some))
    return found


def cell_row(run: Run, data: Dataset) -> Row:
    """Run one cell.

    Parameters
    ----------
    run
        `data` (name), `setting` (fields of `SweepPoint`), `columns` (keys), `trials`, `seed`
    data
        what `run["data"]` names

    Returns
    -------
    dict
        `run`, `versions`, `ece` (key of the column -> [mean, standard deviation] over trials)
        and `seconds`. The same, but for seconds, whatever else is run, where, and when.
    """
    started = time.perf_counter()
    columns = [competitor(key) for key in run["columns"]]
    point = SweepPoint(**run["setting"])
    ece = run_point(_tables(data), point, columns, run["trials"], run["seed"])
    return {
        "run": run,
        "versions": versions(),
        "ece": {k: [float(v.mean()), float(v.std())] for k, v in ece.items()},
        "seconds": time.perf_counter() - started,
    }


_last: tuple[str, Tables] | None = None


def _tables(data: Dataset) -> Tables:
    """Return the tables of a data set; the last ones are cached for its other points."""
    global _last
    digest = f"{data.name} {digest_of(data)}"
    if _last is None or _last[0] != digest:
        _last = (digest, Tables.of(data))
    return _last[1]


# -- many ----------------------------------------------------------------------------------------

TRIALS = 500
"""As in the paper."""


@dataclass(frozen=True)
class Suite:
    """The configuration of a suite of trials.

    Attributes
    ----------
    data
        names and files, each divided anew in every trial; parts for fit and test are one
    columns
        keys of `methods.COLUMNS`
    trials
        of each setting
    settings
        "cifar", "imagenet", or "" = by the number of rows
    every
        take every k-th setting of each sweep, from the last one on: a part of a suite
    seed
        of divisions and noise
    """

    data: tuple[str, ...]
    columns: tuple[str, ...] = tuple(c.key for c in COLUMNS)
    trials: int = TRIALS
    settings: str = ""
    every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.data:
            raise InputError("no data sets are given")
        for name in self.data:
            if self.data.count(name) > 1:
                raise InputError(f"data {name!r} is there twice")
        for key in self.columns:
            one_of("column", key, [c.key for c in COLUMNS])
        if self.settings:
            one_of("settings", self.settings, SUITES)
        whole("trials", self.trials, 1)
        whole("every", self.every, 1)
        check_seed(self.seed)

    def to_toml(self) -> str:
        """Return the suite as TOML text."""
        listed = {"data": list(self.data), "columns": list(self.columns)}
        return tomli_w.dumps(asdict(self) | listed)

    def settings_of(self, name: str, rows: int) -> list[SweepPoint]:
        """Return the settings for a data set with this number of rows."""
        found = SUITES[self.settings or suite_for(rows)]
        sweeps: dict[str, list[SweepPoint]] = {}
        for setting in found:
            sweeps.setdefault(setting.sweep, []).append(setting)
        some = [s for sweep in sweeps.values() for s in sweep[:: -self.every][::-1]]
        return fitting(some, rows, name)


def check_cell(row: Any) -> None:
    """Raise ValueError, or what looking at it raises, unless a row that was read is complete."""
    means = [*row["ece"].values()]
    numbers = [row["seconds"], *(mean for mean, _ in means), *(std for _, std in means)]
    if (
        row.keys() != {"run", "versions", "ece", "seconds"}
        or not isinstance(row["versions"], dict)
        or [*row["ece"]] != row["run"]["columns"]
        or not all(type(n) is float and 0.0 <= n < 1e9 for n in numbers)
    ):
        raise ValueError("not a cell")


DONE = "suite.json"
"""The file that is there when all cells are finished."""


def _save(suite: Suite, rows: Sequence[Row], out: Path) -> None:
    """Replace the grown file by one in order, and say that it is finished."""

    def write(draft: Path) -> None:
        (draft / CONFIG).write_text(suite.to_toml(), "utf-8")
        lines = (json.dumps(row, allow_nan=False) + "\n" for row in rows)
        (draft / ROWS).write_text("".join(lines), "utf-8")
        done = {"schema": 1, "kind": "suite", "cells": len(rows)}
        (draft / DONE).write_text(to_json(done), "utf-8")

    write_folder(out, write)


def run_suite(
    suite: Suite,
    *,
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Run all cells.

    Parameters
    ----------
    suite
        what to run
    out
        folder that keeps finished cells; None = nothing is kept
    resume
        go on with what `out` holds
    jobs
        processes; None = the cores that may be used
    ray_address
        of a cluster, or "local": cells are Ray tasks
    progress
        called after each cell

    Returns
    -------
    list of dict
        See `cell_row`, in the order of data sets and settings. The same, but for seconds,
        whatever `jobs`, `ray_address` and interruptions.

    Raises
    ------
    InputError
        Data that cannot be read or have too few rows, a folder that does not fit; nothing ran.
    Interrupted
        Ctrl-C; finished cells are kept in `out`.
    """
    place = pool_of(jobs, ray_address)
    journal = None
    if out is not None:
        journal = Journal(out, DONE, check_cell, resume=resume)
    sources = {name: load_any(name) for name in suite.data}
    runs, nothing = _runs(suite, sources), dict[str, Row]()
    kept = (
        nullcontext(nothing) if journal is None else journal.opened(suite.to_toml(), sources, runs)
    )
    with place as pool, kept as rows:
        ordered = run_all(runs, sources, cell_row, pool, rows, progress)
        if journal is not None:
            _save(suite, ordered, journal.out)
    return ordered


def _runs(suite: Suite, sources: Mapping[str, Dataset]) -> list[Run]:
    shared = {"columns": list(suite.columns), "trials": suite.trials, "seed": suite.seed}
    return [
        {"data": name, "setting": setting.to_dict(), **shared}
        for name, source in sources.items()
        for setting in suite.settings_of(name, len(rows_of(source)[1]))
    ]
