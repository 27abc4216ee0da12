"""One setting on one data set: its trials, and the row that is kept of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedcal.datasets import Dataset
from fedcal.experiments.luo.bench import GRID, Bench
from fedcal.experiments.luo.methods import (
    BASELINES,
    PRIVATE,
    Column,
    Drawn,
    Released,
    acc_t_exponential,
    column,
    drawn,
)
from fedcal.experiments.luo.settings import Setting
from fedcal.experiments.luo.trials import Trials, divisions
from fedcal.experiments.result import versions
from fedcal.experiments.runs import Row, Run, digest_of
from fedcal.streams import Purpose, stream
from fedcal.types import Floats

_BLOCK = 50  # trials at a time; their sums are exact, so this changes no bit


def run_setting(
    bench: Bench, setting: Setting, columns: Sequence[Column], trials: int, seed: int
) -> Mapping[str, Floats]:
    """Test ECE of each trial, by key of the column.

    All columns see the same divisions; each has noise of its own. What a column gives does not
    depend on which others there are.
    """
    fit = divisions(bench, setting, trials, seed)
    what = f"luo {bench.name} {setting.name}"
    noise = {
        c: drawn(c, setting, GRID, trials, stream(seed, Purpose.NOISE, what=f"{what} {c.key}"))
        for c in columns
    }
    found = {c.key: np.empty(trials) for c in columns}
    for i in range(0, trials, _BLOCK):
        some = slice(i, i + _BLOCK)
        block = Trials(bench, setting, fit[some])
        for c in columns:
            found[c.key][some] = _one(c, block, noise[c], some)
    return found


def _one(c: Column, block: Trials, noise: Drawn, some: slice) -> Floats:
    if noise is None:
        return BASELINES[c.method](block)
    if isinstance(noise, Released):
        return PRIVATE[c.method].run(block, replace(noise, noise=noise.noise[some]))
    return acc_t_exponential(block, noise[some])


def cell_row(run: Run, data: Dataset) -> Row:
    """Run one cell.

    Parameters
    ----------
    run : `data` (name), `setting` (fields of `Setting`), `columns` (keys), `trials`, `seed`
    data : what `run["data"]` names

    Returns
    -------
    dict
        `run`, `versions`, `ece` (key of the column -> [mean, standard deviation] over trials)
        and `seconds`. The same, but for seconds, whatever else is run, where, and when.
    """
    started = time.perf_counter()
    columns = [column(key) for key in run["columns"]]
    ece = run_setting(_bench(data), Setting(**run["setting"]), columns, run["trials"], run["seed"])
    return {
        "run": run,
        "versions": versions(),
        "ece": {k: [float(v.mean()), float(v.std())] for k, v in ece.items()},
        "seconds": time.perf_counter() - started,
    }


_last: tuple[str, Bench] | None = None


def _bench(data: Dataset) -> Bench:
    """The tables of a data set; those of the last one are kept, for its other settings."""
    global _last
    digest = f"{data.name} {digest_of(data)}"
    if _last is None or _last[0] != digest:
        _last = (digest, Bench.of(data))
    return _last[1]
