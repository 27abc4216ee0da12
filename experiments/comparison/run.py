"""Many methods, budgets, partitions and seeds in one table: what `fedcal compare` runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fedcal import datasets
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.experiments.comparison.grid import Grid, read_grid
from fedcal.experiments.comparison.resolve import resolve
from fedcal.experiments.comparison.result import DONE, FINAL, Comparison
from fedcal.experiments.comparison.row import check_row, run_row, runs_of
from fedcal.experiments.comparison.variant import Variant
from fedcal.experiments.config import read_toml
from fedcal.experiments.figures import COMPARISON_NAMES
from fedcal.experiments.files import check_out
from fedcal.experiments.inputs import load_any
from fedcal.experiments.runs import Folder, begun_config, pool_of, run_all
from fedcal.strategies.outcome import Progress

Data: TypeAlias = str | Path | Dataset | Mapping[str, Any]


def compare(
    data: Data | Sequence[Data] | None = None,
    *,
    config: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    engine: str | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
    uncalibrated: bool = True,
    **options: Any,
) -> Comparison:
    """Run every method at every budget on every partition with every seed.

    Choosing among methods by their results on private rows is itself a release: see `statement`
    of what comes back.

    Parameters
    ----------
    data : as in `simulate`, or a list of such
    config : TOML file with any of the options
    out : folder for `rows.jsonl`, which grows while it runs, and, at the end, `compare.json`,
        `table.csv`, `table.md`, `report.html` and figures; None = write nothing. A finished
        comparison there stays until this one is saved; meanwhile this one lies in `.unfinished`
        in it. The hidden `.inputs.json`, with digests of the data, is for `resume` alone and not
        to be published
    resume : go on with what `out` holds, and run again what failed. Options that are not given
        are those it was begun with; a grid may grow, but what was begun must stay part of it
    jobs : processes; None = the cores that may be used. 1 = this process
    engine : "inline" = processes of this machine; "ray" = tasks on Ray. Each run is computed
        inline on either: all engines of `simulate` give the same bits
    ray_address : of a Ray cluster, or "local"; implies "ray"
    progress : called after each run with runs finished, runs kept earlier among them, and all
    uncalibrated : whether the model as it is (method none) has a line also where it is not asked
        for
    **options : as on the command line. Each a value, a list, or text with commas: method (all;
        `fedbbq[weighting=none]` is fedbbq with a parameter), partition, clients, rounds,
        sampling_rate, epsilon (inf and 1), delta, unit, trust, mechanism. A single value: seeds
        (5) and seed (0), runs have seed .. seed + seeds - 1; quorum, noise_source,
        secure_aggregation, dropout, and set={...} for every method that has such a parameter.
        Baselines (none, pooled-...) appear once for each data set. At epsilon = inf nothing but
        exact sums is released, whatever delta and trust. A budget, unit, trust and mechanism that
        do not go together are left out, with a warning and a line in `statement`

    Returns
    -------
    Comparison
        The same, but for seconds, whatever `jobs`, `engine`, and interruptions. A run that fails
        in operation is a row that says why, and the others go on.

    Raises
    ------
    InputError
        Anything in the whole grid that is not allowed; nothing ran.
    FedcalError
        A worker died, or nothing can be written; finished runs are kept in `out`.
    Interrupted
        Ctrl-C; finished runs are kept in `out`.
    """
    place = pool_of(jobs, engine, ray_address)
    out = None if out is None else Path(out)
    begun: Mapping[str, Any] = {}
    if resume:
        if out is None:
            raise InputError("resume needs the folder of the comparison: give --out DIR")
        begun = begun_config(out) if config is None else {}
    elif out is not None:
        check_out(out, foreign="result.json")
    named, arrays = _named(data)
    read = {} if config is None else read_toml(Path(config))
    grid = _with_paths(read_grid(begun, read, {"data": named}, options), arrays)
    sources = {name: load_any(arrays.get(name, name)) for name in grid.data}
    plain = [] if "none" in (v.method for v in grid.method) else [Variant("none")]
    methods: Any = {"method": (*plain, *grid.method)}  # a field made of one of `Config`
    resolved = resolve(replace(grid, **methods) if uncalibrated else grid, sources)
    return run_all(
        [run for cell in resolved.cells for run in runs_of(cell)],
        sources,
        run_row,
        partial(Comparison.of, grid, resolved, sources),
        place=place,
        folder=None if out is None else _folder(out, grid),
        resume=resume,
        progress=progress,
    )


def _folder(out: Path, grid: Grid) -> Folder:
    def what_differs(begun: Mapping[str, Any]) -> list[str]:
        return grid.what_differs(read_grid(begun))

    files = (*FINAL, *COMPARISON_NAMES)
    return Folder(out, grid.to_toml(), what_differs, check_row, DONE, files)


def _named(data: Data | Sequence[Data] | None) -> tuple[Any, dict[str, Dataset]]:
    """What the option `data` is to say, and those that are no file and no shipped set by name."""
    if data is None or isinstance(data, str):
        return data, {}
    listed = list(data) if isinstance(data, Sequence) else [data]
    loaded = [d if isinstance(d, (str, Path)) else load_any(d) for d in listed]
    names = [d.name if isinstance(d, Dataset) else str(d) for d in loaded]
    return names, {d.name: d for d in loaded if isinstance(d, Dataset)}


def _with_paths(grid: Grid, arrays: Mapping[str, Dataset]) -> Grid:
    """Files by their whole path, as `simulate` names them."""

    def named(data: str) -> str:
        there = data in arrays or datasets.is_shipped(data)
        return data if there else str(Path(data).expanduser().resolve())

    whole: Any = {"data": tuple(map(named, grid.data))}  # a field made of one of `Config`
    return replace(grid, **whole)
