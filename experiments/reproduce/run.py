"""Run an experiment of the table: what `fedcal reproduce NAME` runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.files import check_out
from experiments.reproduce.cells import printed_cells
from experiments.reproduce.claims import CLAIMS, Verdict, judge
from experiments.reproduce.grids import begun, run_grids
from experiments.reproduce.registry import experiment
from experiments.reproduce.result import Reproduction
from experiments.reproduce.spec import RowsExperiment, printed
from fedcal.checks import whole
from fedcal.errors import InputError
from strategies.job import Progress


def reproduce(
    name: str,
    *,
    data: Sequence[str] = (),
    networks: Sequence[str] | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
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
    if isinstance(found, RowsExperiment):
        if resume:
            raise InputError(f"{name} is computed in one go and is not resumed; leave out --resume")
        return _run_rows(found, _taken(found, data, networks, seeds, jobs, progress), folder)
    runs = None if folder is None else folder / "runs" / name
    if runs is not None:
        _check_begun(name, runs, done=(runs.parents[1] / f"{name}.json").exists(), resume=resume)
    cells, statement = run_grids(
        found,
        [*(found.networks if networks is None else networks), *data],
        found.seeds if seeds is None else seeds,
        out=runs,
        resume=resume,
        jobs=jobs,
        progress=progress,
    )
    beside = printed_cells(printed(found.paper)) if found.paper else []
    verdicts = [judge(CLAIMS[key], cells, beside) for key in found.claims]
    return _saved(Reproduction(found, cells, [], verdicts, statement), folder)


def _check_begun(name: str, runs: Path, *, done: bool, resume: bool) -> None:
    there = begun(runs)
    if resume and not there:
        raise InputError(
            f"nothing of {name} to resume in {runs.parents[1]}; start without --resume"
        )
    if there and not done and not resume:
        raise InputError(
            f"{runs.parents[1]} holds an unfinished run of {name}: go on with --resume, or choose "
            "another --out"
        )


def _taken(
    found: RowsExperiment,
    data: Sequence[str],
    networks: Sequence[str] | None,
    seeds: int | None,
    jobs: int | None,
    progress: Progress | None,
) -> dict[str, Any]:
    """The options that were given; InputError for one that the function does not take.

    How many processes there may be is a wish, and progress is for show: who does not take them is
    not given them.
    """
    given = {"data": [*(networks or ()), *data] or None, "seeds": seeds}
    for key, value in given.items():
        if value is not None and key not in found.takes:
            raise InputError(f"{found.name} has no choice of {key}; leave out --{key}")
    wished = {**given, "jobs": jobs, "progress": progress}
    return {k: v for k, v in wished.items() if v is not None and k in found.takes}


def _run_rows(found: RowsExperiment, options: dict[str, Any], out: Path | None) -> Reproduction:
    logging.getLogger("flwr").setLevel(logging.ERROR)  # some run Flower's loop, which tells a lot
    rows = found.rows(**options)
    verdicts = []
    if found.claims is not None:
        for text, holds, said in found.claims(rows):
            verdicts.append(Verdict(text, "", holds, said))
    return _saved(Reproduction(found, [], rows, verdicts, []), out)


def _saved(result: Reproduction, out: Path | None) -> Reproduction:
    if out is not None:
        result.save(out)
    return result
