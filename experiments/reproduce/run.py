"""Run an experiment of the table: what `fedcal reproduce NAME` runs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcal.checks import whole
from fedcal.errors import InputError, TooLittle
from fedcal.experiments.files import check_out
from fedcal.experiments.reproduce.grids import begun, run_grids
from fedcal.experiments.reproduce.registry import experiment
from fedcal.experiments.reproduce.result import Reproduction
from fedcal.experiments.reproduce.spec import RowsExperiment
from fedcal.strategies.outcome import Progress


def reproduce(
    name: str,
    *,
    data: Sequence[str] = (),
    networks: Sequence[str] | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Run an experiment of the papers again.

    Parameters
    ----------
    name : of `registry.EXPERIMENTS`
    data : files that get lines of their own, below the shipped networks
    networks : instead of the experiment's own, for a part of it
    seeds : how many, from 0; None = the experiment's own, 5 as in the paper
    jobs : processes; None = the cores that may be used
    out : folder for the results, see `Reproduction.save`, and for the runs of each part; None =
        write nothing
    resume : go on with what `out` holds
    ray_address : of a Ray cluster, or "local": runs are Ray tasks
    progress : called after each run

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
    folder = None if out is None else Path(out)
    if resume and folder is None:
        raise InputError("resume needs the folder of the experiment: give --out DIR")
    if seeds is not None:
        whole("seeds", seeds, 1)
    if folder is not None:
        check_out(folder)
    runs = None if folder is None else folder / "runs" / name
    if isinstance(found, RowsExperiment):
        given = {"data": [*(networks or ()), *data] or None, "seeds": seeds}
        options = _taken(found, given | {"ray_address": ray_address})
        if resume and "resume" not in found.takes:
            raise InputError(f"{name} is computed in one go and is not resumed; leave out --resume")
        wished = {"jobs": jobs, "progress": progress, "out": runs, "resume": resume}
        options |= {k: v for k, v in wished.items() if v is not None and k in found.takes}
        if "resume" in found.takes:
            _check_unfinished(name, runs, resume=resume)
        logging.getLogger("flwr").setLevel(logging.ERROR)  # Flower logs each message
        result = Reproduction(found, [], found.rows(**options), [])
    else:
        _check_unfinished(name, runs, resume=resume)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooLittle)  # what noise drowns is what is shown
            scores, statement = run_grids(
                found,
                [*(found.networks if networks is None else networks), *data],
                found.seeds if seeds is None else seeds,
                out=runs,
                resume=resume,
                jobs=jobs,
                ray_address=ray_address,
                progress=progress,
            )
        result = Reproduction(found, scores, [], statement)
    if folder is not None:
        result.save(folder)
    return result


def _check_unfinished(name: str, runs: Path | None, *, resume: bool) -> None:
    """Refuse to go on where nothing was begun, and to begin where something is unfinished."""
    if runs is None:
        return
    there, done = begun(runs), (runs.parents[1] / f"{name}.json").exists()
    if resume and not there:
        raise InputError(
            f"nothing of {name} to resume in {runs.parents[1]}; start without --resume"
        )
    if there and not done and not resume:
        raise InputError(
            f"{runs.parents[1]} holds an unfinished run of {name}: go on with --resume, or choose "
            "another --out"
        )


def _taken(found: RowsExperiment, given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; InputError for one that the function does not take.

    Others are wishes, and who does not take them is not given them: processes, progress, a folder.
    """
    given = {k: v for k, v in given.items() if v is not None}
    for key in given:
        if key not in found.takes:
            option = key.replace("_", "-")
            raise InputError(f"{found.name} has no choice of {key}; leave out --{option}")
    return given
