"""Run an experiment: a grid by `compare`, part by part, or a function."""

from __future__ import annotations

import inspect
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.studies.claims import row_of
from experiments.studies.result import Reproduction, kind_of
from experiments.studies.spec import Experiment, Part, Rows, experiment
from fedcal.core.checks import InputError, TooLittle, whole
from fedcal.datasets import Dataset, is_shipped
from fedcal.results.comparison import names_of
from fedcal.run.comparison import compare
from fedcal.run.comparison.grid import read_grid, resolve
from fedcal.run.folders import claim
from fedcal.run.load import load_any
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress

DEALT, CLIENTS = "dirichlet:0.1", 100
"""Partition and clients of a part that names none."""


def reproduce(
    name: str,
    *,
    data: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Run an experiment of the papers again.

    Parameters
    ----------
    name
        of `spec.EXPERIMENTS`
    data
        names of shipped data, or files, instead of the experiment's own
    seeds
        how many, from 0; None = the experiment's own, 5 as in the paper
    jobs
        processes; None = the cores that may be used
    out
        folder for the results, see `Reproduction.save`; None = write nothing
    overwrite
        replace what `out` holds of this experiment; otherwise it is refused
    progress
        called after each run

    Returns
    -------
    Reproduction
        The same, but for seconds, whatever `jobs`.

    Raises
    ------
    InputError
        An unknown name or option, data that do not fit; nothing ran.
    """
    found = experiment(name)
    if seeds is not None:
        whole("seeds", seeds, 1)
    if out is not None:
        claim(path_of(out), kind_of(name), overwrite=overwrite, report=False)
    if found.parts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooLittle)  # what noise drowns is what is shown
            result = _grid(found, data or found.networks, seeds or found.seeds, jobs, progress)
    else:
        takes = inspect.signature(found.study.rows).parameters
        asked = {"data": data or None, "seeds": seeds}
        given: dict[str, Any] = {k: v for k, v in asked.items() if v is not None}
        for key in given.keys() - takes.keys():
            raise InputError(f"{name} has no choice of {key}; leave out --{key}")
        given |= {k: v for k, v in {"jobs": jobs, "progress": progress}.items() if k in takes}
        logging.getLogger("flwr").setLevel(logging.ERROR)  # Flower logs each message
        result = Reproduction(found, found.study.rows(**given))
    if out is not None:
        result.save(out)
    return result


def _grid(
    found: Experiment,
    data: Sequence[str],
    seeds: int,
    jobs: int | None,
    progress: Progress | None,
) -> Reproduction:
    """Run all parts, each a comparison of its own."""
    names = [n if is_shipped(n) else str(path_of(n).resolve()) for n in data]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"data {twice[0]!r} is there twice")
    sources = {name: load_any(name) for name in names}
    pieces = list(_pieces(found, sources, seeds))
    grids = [resolve(read_grid(options), sources) for _, options in pieces]  # all are checked
    counts = [sum(len(cell.seeds) for cell in grid[0]) for grid in grids]
    short = names_of([{"data": name} for name in sources])
    rows, statement = Rows(), dict[str, None]()
    for k, (part, options) in enumerate(pieces):

        def moved(finished: int, _: int, before: int = sum(counts[:k])) -> None:
            if progress:
                progress(before + finished, sum(counts))

        table = compare(progress=moved, uncalibrated=False, jobs=jobs, **options)
        rows += [row_of(line, part, short[line["data"]]) for line in table.cells]
        statement |= dict.fromkeys(table.statement)
    return Reproduction(found, rows, list(statement))


def _pieces(
    found: Experiment, sources: Mapping[str, Dataset], seeds: int
) -> Iterator[tuple[Part, dict[str, Any]]]:
    """Yield each part with options of `compare`, for networks that share a partition.

    Networks with clients of their own are apart where a part does not deal all of them.
    """
    own = [name for name, data in sources.items() if data.client is not None]
    for part in found.parts:
        methods = [*part.methods.values()]
        given = {"epsilon": math.inf, "seeds": seeds, "method": methods, **part.settings}
        if "partition" in given:
            yield part, {"data": list(sources), "clients": CLIENTS, **given}
            continue
        if dealt := [name for name in sources if name not in own]:
            yield part, {"data": dealt, "partition": DEALT, "clients": CLIENTS, **given}
        if own:
            yield part, {**given, "data": own, "partition": "natural", "clients": None}
