"""Run an experiment: `python -m experiments NAME`."""

from __future__ import annotations

import inspect
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.studies.cells import row_of
from experiments.studies.expected import check, shipped
from experiments.studies.result import Reproduction
from experiments.studies.spec import EXPERIMENTS, Experiment, Part, Rows, experiment
from fedcal.core.checks import FedcalError, InputError, Interrupted, TooLittle, whole
from fedcal.datasets import Dataset, is_shipped
from fedcal.results.comparison import names_of
from fedcal.results.files import to_json
from fedcal.results.terminal import console, print_table
from fedcal.results.terminal import progress as progress_of
from fedcal.run.comparison import compare
from fedcal.run.comparison.grid import read_grid, resolve
from fedcal.run.folders import Kind, claim
from fedcal.run.load import load_any
from fedcal.run.sweep import ROWS
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress

DEALT, CLIENTS = "dirichlet:0.1", 100
"""Partition and clients of a part that names none."""

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
        of `spec.EXPERIMENTS`
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
        go on with what `out` holds of a grid
    overwrite
        replace what `out` holds of this experiment; otherwise it is refused
    ray_address
        of a Ray cluster, or "local": runs of a grid are Ray tasks
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
    if resume and not (found.parts and folder):
        raise InputError(
            f"{name} is computed in one go and is not resumed; leave out --resume"
            if folder
            else "resume needs the folder of the experiment: give --out DIR"
        )
    if seeds is not None:
        whole("seeds", seeds, 1)
    if folder is not None:
        names = tuple(f"{name}{suffix}" for suffix in _SUFFIXES)
        kind = Kind(name, {f"{name}.json": "kind"}, names)
        claim(folder, kind, overwrite=overwrite, resume=resume)
    if found.parts:
        runs = None if folder is None else _runs_of(name, folder, resume, overwrite)
        every = [*(found.networks if networks is None else networks), *data]
        how = {"jobs": jobs, "ray_address": ray_address, "resume": resume}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooLittle)  # what noise drowns is what is shown
            result = _grid(found, every, seeds or found.seeds, runs, progress, how)
    else:
        takes = inspect.signature(found.home.rows).parameters
        given: dict[str, Any] = {"data": [*(networks or ()), *data] or None, "seeds": seeds}
        given = {k: v for k, v in (given | {"ray_address": ray_address}).items() if v is not None}
        for key in given.keys() - takes.keys():
            option = key.replace("_", "-")
            raise InputError(f"{name} has no choice of {key}; leave out --{option}")
        given |= {k: v for k, v in {"jobs": jobs, "progress": progress}.items() if k in takes}
        logging.getLogger("flwr").setLevel(logging.ERROR)  # Flower logs each message
        result = Reproduction(found, found.home.rows(**given))
    if folder is not None:
        result.save(folder)
    return result


def _runs_of(name: str, folder: Path, resume: bool, overwrite: bool) -> Path:
    """Return the folder of the runs; refuse to begin where something is unfinished."""
    runs = folder / "runs" / name
    begun = any(runs.glob(f"*/{ROWS}"))
    if resume and not begun:
        raise InputError(f"nothing of {name} to resume in {folder}; start without --resume")
    if begun and not (resume or overwrite) and not (folder / f"{name}.json").exists():
        raise InputError(
            f"{folder} holds an unfinished run of {name}: go on with --resume, or choose "
            "another --out"
        )
    return runs


def _grid(
    found: Experiment,
    data: Sequence[str],
    seeds: int,
    runs: Path | None,
    progress: Progress | None,
    how: Mapping[str, Any],
) -> Reproduction:
    """Run all parts, each a comparison of its own, in a folder of its own."""
    names = [n if is_shipped(n) else str(path_of(n).resolve()) for n in data]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"data {twice[0]!r} is there twice")
    sources = {name: load_any(name) for name in names}
    pieces = list(_pieces(found, sources, seeds))
    grids = [resolve(read_grid(options), sources) for _, _, options in pieces]  # all are checked
    counts = [sum(len(cell.seeds) for cell in grid[0]) for grid in grids]
    short = names_of([{"data": name} for name in sources])
    rows, said = Rows(), dict[str, list[str]]()
    for k, (part, name, options) in enumerate(pieces):
        folder = None if runs is None else runs / name

        def moved(finished: int, _: int, before: int = sum(counts[:k])) -> None:
            if progress:
                progress(before + finished, sum(counts))

        begun = folder is not None and (folder / ROWS).exists()
        # `reproduce` has refused what must not be replaced
        given = {**how, "resume": how["resume"] and begun, "out": folder, "overwrite": True}
        try:
            table = compare(progress=moved, uncalibrated=False, **given, **options)
        except Interrupted:
            raise
        except KeyboardInterrupt:
            kept = f"finished runs are kept in {runs}; go on with --resume"
            raise Interrupted("nothing was written" if runs is None else kept) from None
        rows += [row_of(line, part, short) for line in table.cells]
        said[name] = table.statement
    lines = (
        line if all(line in other for other in said.values()) else f"Of the part {name}: {line}"
        for name, own in said.items()
        for line in own
    )
    return Reproduction(found, rows, list(dict.fromkeys(lines)))


def _pieces(
    found: Experiment, sources: Mapping[str, Dataset], seeds: int
) -> Iterator[tuple[Part, str, dict[str, Any]]]:
    """(part, name of its folder, options of `compare`): networks that share a partition.

    Networks with clients of their own are apart where a part does not deal all of them.
    """
    own = [name for name, data in sources.items() if data.client is not None]
    for part in found.parts:
        methods = [*part.methods.values()]
        given = {"epsilon": math.inf, "seeds": seeds, "method": methods, **part.settings}
        if "partition" in given:
            yield part, part.name, {"data": list(sources), "clients": CLIENTS, **given}
            continue
        if dealt := [name for name in sources if name not in own]:
            deal = {"data": dealt, "partition": DEALT, "clients": CLIENTS}
            yield part, part.name, {**deal, **given}
        if own:
            natural = {"data": own, "partition": "natural", "clients": None}
            yield part, f"{part.name}-own-clients", {**given, **natural}


# -- the command ---------------------------------------------------------------------------------


def run_reproduce(
    name: str | None,
    data: str | None,
    *,
    checked: bool,
    listed: bool,
    quiet: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """`python -m experiments`; what it does not say itself, `how`, are options of `reproduce`.

    Raises
    ------
    InputError
        An unknown name, an option that does not fit; nothing ran.
    FedcalError
        A run failed, or results are not what `checked` expects.
    """
    if name is None or listed:
        if name or checked or data is not None or any(v is not None and v for v in how.values()):
            needed = "reproduce needs a NAME; python -m experiments --list shows them"
            raise InputError(needed if name is None else "--list takes no NAME and no other option")
        every = [experiment(known) for known in EXPERIMENTS]
        if as_json:
            told = [{"name": e.name, "title": e.title, "about": e.about} for e in every]
            print(to_json(told), end="")
        elif not quiet:
            for e in every:
                console().print(f"{e.name:{max(map(len, EXPERIMENTS))}}  {e.about}")
        return
    files = [] if data is None else [text.strip() for text in data.split(",")]
    if not all(files):
        raise InputError(f"--data: an entry of the list {data!r} is empty")
    experiment(name)
    expected = shipped(name) if checked else None
    with progress_of(name, quiet=quiet) as steps:
        result = reproduce(name, data=files, progress=steps, **how)
    if as_json:
        print(to_json(result.to_json()), end="")
    elif not quiet:
        _show(result, how["out"])
    if failures := result.failures:
        raise FedcalError(f"{len(failures)} runs failed, the first with: {failures[0]}")
    if expected is not None:
        for line in (wrong := check(result, expected)):
            console(stderr=True).print(f"fedcal: deviation: {line}")
        if wrong:
            raise FedcalError(f"{name}: {len(wrong)} deviations from what is expected")
        if not (quiet or as_json):
            print("all results are as expected")


def _show(result: Reproduction, out: Path | None) -> None:
    to = console()
    for table in result.tables:
        print_table(to, table)
    for line in (*result.verdicts, *result.notes):
        to.print(f"- {line}")
    if out is not None:
        to.print(f"written to {out}; the page is {out / result.experiment.name}.html")
