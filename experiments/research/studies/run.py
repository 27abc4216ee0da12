"""Run an experiment of the table: what `fedcal reproduce NAME` runs."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcal.core.checks import InputError, TooLittle, whole
from fedcal.experiments.research.studies.grids import run_grids
from fedcal.experiments.research.studies.registry import experiment
from fedcal.experiments.research.studies.result import Reproduction
from fedcal.experiments.runs.folders import Kind, claim
from fedcal.experiments.runs.sweep import ROWS
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress

_SUFFIXES = (".json", ".md", ".csv", ".html", ".png", ".svg", ".pdf")
"""Kind of the files of an experiment."""


def reproduce(
    name: str,
    *,
    data: Sequence[str] = (),
    networks: Sequence[str] | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Run an experiment of the papers again.

    Parameters
    ----------
    name
        of `registry.EXPERIMENTS`
    data
        files that get lines of their own, below the shipped networks
    networks
        instead of the experiment's own, for a part of it
    seeds
        how many, from 0; None = the experiment's own, 5 as in the paper
    jobs
        processes; None = the cores that may be used
    out
        folder for the results, see `Reproduction.save`, and for the runs of each part; None =
        write nothing
    resume
        go on with what `out` holds
    overwrite
        replace what `out` holds of this experiment; otherwise it is refused
    ray_address
        of a Ray cluster, or "local": runs are Ray tasks
    progress
        called after each run

    Returns
    -------
    Reproduction
        The same, but for seconds, whatever `jobs` and interruptions.

    Raises
    ------
    InputError
        An unknown name or option, data that do not fit; nothing ran.
    Interrupted
        Ctrl-C; finished runs are kept in `out`.
    """
    found = experiment(name)
    folder = None if out is None else path_of(out)
    if resume and folder is None:
        raise InputError("resume needs the folder of the experiment: give --out DIR")
    if seeds is not None:
        whole("seeds", seeds, 1)
    runs = None
    if folder is not None:
        names = tuple(f"{name}{suffix}" for suffix in _SUFFIXES)
        kind = Kind(name, {f"{name}.json": "kind"}, names)
        claim(folder, kind, overwrite=overwrite, resume=resume)
        runs = folder / "runs" / name
    wishes: dict[str, Any] = {"jobs": jobs, "progress": progress, "out": runs, "resume": resume}
    if found.parts:
        _check_unfinished(name, runs, resume=resume, overwrite=overwrite)
        data = [*(found.networks if networks is None else networks), *data]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooLittle)  # what noise drowns is what is shown
            seeds = found.seeds if seeds is None else seeds
            rows, statement = run_grids(found, data, seeds, ray_address=ray_address, **wishes)
        result = Reproduction(found, rows, statement)
    else:
        takes = inspect.signature(found.home.rows).parameters
        given: dict[str, Any] = {"data": [*(networks or ()), *data] or None, "seeds": seeds}
        given = {k: v for k, v in (given | {"ray_address": ray_address}).items() if v is not None}
        for key in given.keys() - takes.keys():
            option = key.replace("_", "-")
            raise InputError(f"{name} has no choice of {key}; leave out --{option}")
        if "resume" in takes:
            _check_unfinished(name, runs, resume=resume, overwrite=overwrite)
        elif resume:
            raise InputError(f"{name} is computed in one go and is not resumed; leave out --resume")
        given |= {k: v for k, v in wishes.items() if v is not None and k in takes}
        logging.getLogger("flwr").setLevel(logging.ERROR)  # Flower logs each message
        result = Reproduction(found, found.home.rows(**given))
    if folder is not None:
        result.save(folder)
    return result


def _check_unfinished(name: str, runs: Path | None, *, resume: bool, overwrite: bool) -> None:
    """Refuse to go on where nothing was begun, and to begin where something is unfinished."""
    if runs is None:
        return
    folder, begun = runs.parents[1], any(path.is_file() for path in runs.glob(f"*/{ROWS}"))
    if resume and not begun:
        raise InputError(f"nothing of {name} to resume in {folder}; start without --resume")
    if begun and not (resume or overwrite) and not (folder / f"{name}.json").exists():
        raise InputError(
            f"{folder} holds an unfinished run of {name}: go on with --resume, or choose "
            "another --out"
        )
