"""The runs of an experiment: each part a comparison of its own, in a folder of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcal.datasets import Dataset, is_shipped
from fedcal.errors import InputError, Interrupted
from fedcal.experiments.comparison import compare
from fedcal.experiments.comparison.grid import Grid, read_grid
from fedcal.experiments.comparison.resolve import resolve
from fedcal.experiments.report.comparison import names_of
from fedcal.experiments.reproduce.cells import Cell, cell_of
from fedcal.experiments.reproduce.spec import GridExperiment, Part
from fedcal.experiments.runs.journal import ROWS
from fedcal.experiments.simulation import load_any
from fedcal.strategies.job import Progress

DEALT = "dirichlet:0.1"
CLIENTS = 100


@dataclass(frozen=True)
class _Piece:
    """A part on the networks that share a partition: what one `compare` runs."""

    part: Part
    name: str
    options: dict[str, Any]


def run_grids(
    experiment: GridExperiment,
    networks: Sequence[str],
    seeds: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> tuple[list[Cell], list[str]]:
    """Run all parts.

    Parameters
    ----------
    networks : names and files, as `compare` takes them
    out : folder that gets a folder for each part, as `compare` leaves it; None = nothing is kept
    resume : go on with what is there; parts that were not begun start
    jobs, ray_address : as `compare` takes them

    Returns
    -------
    cells in the order of the parts, and what the tables give away, in whole sentences

    Raises
    ------
    InputError
        As `compare`, for any of the parts before the first one runs; or `out` holds runs of an
        experiment that was not finished, and `resume` is not set.
    Interrupted
        Ctrl-C; the message says where finished runs are kept.
    """
    sources: dict[str, Dataset] = {}
    for name in map(_whole, networks):
        if name in sources:
            raise InputError(f"data {name!r} is there twice")
        sources[name] = load_any(name)
    pieces = list(_pieces(experiment, sources, seeds))
    counts = [_count(read_grid(piece.options), sources) for piece in pieces]
    folders = [None if out is None else out / piece.name for piece in pieces]
    there = [folder is not None and (folder / ROWS).exists() for folder in folders]
    names = names_of([{"data": name} for name in sources])
    cells: list[Cell] = []
    said: dict[str, list[str]] = {}
    done, total = 0, sum(counts)
    for piece, count, folder, kept in zip(pieces, counts, folders, there, strict=True):

        def moved(finished: int, _: int, before: int = done) -> None:
            if progress:
                progress(before + finished, total)

        try:
            comparison = compare(
                out=folder,
                resume=resume and kept,
                jobs=jobs,
                ray_address=ray_address,
                progress=moved,
                uncalibrated=False,
                **piece.options,
            )
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted(_kept(out)) from None
        asked = [
            c
            for c in comparison.cells
            if c["method"] != "none" or "none" in piece.options["method"]
        ]
        cells += [cell_of(line, piece.part, names) for line in asked]
        said[piece.name] = comparison.statement
        done += count
    return cells, _joined(said)


def _joined(said: dict[str, list[str]]) -> list[str]:
    """The statements of all comparisons; what not all of them say is told of which it is."""
    lines: list[str] = []
    for name, own in said.items():
        for line in own:
            shared = all(line in other for other in said.values())
            lines.append(line if shared else f"Of the part {name}: {line}")
    return list(dict.fromkeys(lines))


def _kept(out: Path | None) -> str:
    if out is None:
        return "nothing was written"
    return f"finished runs are kept in {out}; go on with --resume"


def begun(out: Path) -> bool:
    """Whether any part was begun in the folder `out` of all parts."""
    return any(path.is_file() for path in out.glob(f"*/{ROWS}"))


def _whole(name: str) -> str:
    """A shipped name as it is; a file by its whole path, as `compare` names it."""
    return name if is_shipped(name) else str(Path(name).expanduser().resolve())


def _pieces(
    experiment: GridExperiment, sources: dict[str, Dataset], seeds: int
) -> Iterator[_Piece]:
    """Networks with clients of their own apart, where a part does not deal all of them."""
    own = [name for name, data in sources.items() if data.client is not None]
    for part in experiment.parts:
        methods = [column.method for column in part.columns]
        shared = {"epsilon": math.inf, "seeds": seeds, "method": methods, **part.settings}
        if "partition" in part.settings:
            yield _Piece(part, part.name, {"data": list(sources), "clients": CLIENTS, **shared})
            continue
        dealt = [name for name in sources if name not in own]
        if dealt:
            deal = {"data": dealt, "partition": DEALT, "clients": CLIENTS}
            yield _Piece(part, part.name, {**deal, **shared})
        if own:
            deal = {"data": own, "partition": "natural", "clients": None}
            yield _Piece(part, f"{part.name}-own-clients", {**shared, **deal})


def _count(grid: Grid, sources: dict[str, Dataset]) -> int:
    """How many runs a grid has; InputError for anything that is not allowed in it."""
    try:
        return sum(len(cell.seeds) for cell in resolve(grid, sources).cells)
    except InputError as e:
        raise InputError(f"an experiment cannot run on these data: {e}") from None
