"""The runs of an experiment: each part a comparison of its own, in a folder of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.core.checks import InputError, Interrupted
from fedcal.datasets import Dataset, is_shipped
from fedcal.experiments.report.comparison import names_of
from fedcal.experiments.research.studies.cells import row_of
from fedcal.experiments.research.studies.spec import Experiment, Part, Rows
from fedcal.experiments.runs.comparison import compare
from fedcal.experiments.runs.comparison.grid import read_grid, resolve
from fedcal.experiments.runs.load import load_any
from fedcal.experiments.runs.sweep import ROWS
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress

DEALT = "dirichlet:0.1"
CLIENTS = 100


def run_grids(
    experiment: Experiment,
    networks: Sequence[str],
    seeds: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> tuple[Rows, list[str]]:
    """Run all parts.

    Parameters
    ----------
    networks
        names and files, as `compare` takes them
    out
        folder that gets a folder for each part, as `compare` leaves it; None = nothing is kept
    resume
        go on with what is there; parts that were not begun start
    jobs, ray_address
        as `compare` takes them

    Returns
    -------
    tuple[Rows, list[str]]
        rows in the order of the parts, and what the tables give away, in whole sentences

    Raises
    ------
    InputError
        As `compare`, for any of the parts before the first one runs; or `out` holds runs of an
        experiment that was not finished, and `resume` is not set.
    Interrupted
        Ctrl-C; the message says where finished runs are kept.
    """
    names = [n if is_shipped(n) else str(path_of(n).resolve()) for n in networks]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"data {twice[0]!r} is there twice")
    sources = {name: load_any(name) for name in names}
    pieces = list(_pieces(experiment, sources, seeds))
    counts = [_count(options, sources) for _, _, options in pieces]
    short = names_of([{"data": name} for name in sources])
    rows: Rows = []
    said: dict[str, list[str]] = {}
    for k, (part, name, options) in enumerate(pieces):
        folder = None if out is None else out / name

        def moved(finished: int, _: int, before: int = sum(counts[:k])) -> None:
            if progress:
                progress(before + finished, sum(counts))

        try:
            comparison = compare(
                out=folder,
                resume=resume and folder is not None and (folder / ROWS).exists(),
                overwrite=True,  # `reproduce` has refused what must not be replaced
                jobs=jobs,
                ray_address=ray_address,
                progress=moved,
                uncalibrated=False,
                **options,
            )
        except Interrupted:
            raise
        except KeyboardInterrupt:
            kept = f"finished runs are kept in {out}; go on with --resume"
            raise Interrupted("nothing was written" if out is None else kept) from None
        rows += [row_of(line, part, short) for line in comparison.cells]
        said[name] = comparison.statement
    return rows, _joined(said)


def _joined(said: Mapping[str, list[str]]) -> list[str]:
    """Join the statements of all comparisons; a line that not all share names its comparison."""
    lines = (
        line if all(line in other for other in said.values()) else f"Of the part {name}: {line}"
        for name, own in said.items()
        for line in own
    )
    return list(dict.fromkeys(lines))


def _pieces(
    experiment: Experiment, sources: Mapping[str, Dataset], seeds: int
) -> Iterator[tuple[Part, str, dict[str, Any]]]:
    """(part, name of its folder, options of `compare`): networks that share a partition.

    Networks with clients of their own are apart where a part does not deal all of them.
    """
    own = [name for name, data in sources.items() if data.client is not None]
    natural = {"data": own, "partition": "natural", "clients": None}
    for part in experiment.parts:
        methods = [*part.methods.values()]
        given = {"epsilon": math.inf, "seeds": seeds, "method": methods, **part.settings}
        if "partition" in given:
            yield part, part.name, {"data": list(sources), "clients": CLIENTS, **given}
            continue
        if dealt := [name for name in sources if name not in own]:
            deal = {"data": dealt, "partition": DEALT, "clients": CLIENTS}
            yield part, part.name, {**deal, **given}
        if own:
            yield part, f"{part.name}-own-clients", {**given, **natural}


def _count(options: Mapping[str, Any], sources: Mapping[str, Dataset]) -> int:
    """Return the number of runs of a grid; InputError for anything not allowed in it."""
    try:
        return sum(len(cell.seeds) for cell in resolve(read_grid(options), sources)[0])
    except InputError as e:
        raise InputError(f"an experiment cannot run on these data: {e}") from None
