"""One point of a sweep on one data set: its trials, and the row that is kept of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.datasets import Dataset
from fedcal.experiments.research.luo.methods import (
    BASELINES,
    PRIVATE,
    Competitor,
    Draws,
    competitor,
)
from fedcal.experiments.research.luo.settings import SweepPoint
from fedcal.experiments.research.luo.tables import Tables
from fedcal.experiments.research.luo.trials import Trials, divisions
from fedcal.experiments.runs.result import versions
from fedcal.experiments.runs.sweep import Row, Run, digest_of

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
    """The tables of a data set; those of the last one are kept, for its other points."""
    global _last
    digest = f"{data.name} {digest_of(data)}"
    if _last is None or _last[0] != digest:
        _last = (digest, Tables.of(data))
    return _last[1]
