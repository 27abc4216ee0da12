"""Run an experiment: a grid by `compare`, part by part, or a function; its tables and files."""

from __future__ import annotations

import inspect
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.studies import claims
from experiments.studies.claims import CLAIMS, MEAN, STD, Verdict
from experiments.studies.spec import Experiment, Field, Part, Record, Rows, experiment
from fedcal import datasets
from fedcal.core.checks import InputError, TooLittle, integer
from fedcal.core.options import strict
from fedcal.core.pages import Table
from fedcal.datasets import Dataset
from fedcal.results.comparison import names_of
from fedcal.results.files import versions
from fedcal.results.terminal import csv_text, markdown
from fedcal.run.comparison import compare
from fedcal.run.comparison.grid import read_grid, resolve
from fedcal.run.folders import Kind, claim
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress

MARK = "†"
"""Follows a number of a calibrator that loses more than 1 % of accuracy."""

LEGEND = (
    "Mean (standard deviation over seeds) on test rows, in %, of the classwise ECE, or of what the "
    "heading names. "
    f"{MARK}: loses more than 1 % of accuracy."
)

CSV_KEYS = (
    *("network", "row", "block", "title", "method", "epsilon", "rounds", "sampling_rate"),
    *("clients", "partition", MEAN, STD, "accuracy_before", "accuracy_mean", "loses_accuracy"),
)
"""Keys of a grid's rows that its CSV file has; the file of a function has all keys."""

VARIED = {"partition": "{}", "epsilon": "ε = {:g}", "rounds": "T = {}"}
"""Settings that tell lines of one network apart, where a method has several; and their words."""


@dataclass(frozen=True)
class Reproduction:
    """An experiment's results.

    Attributes
    ----------
    experiment
        what was run
    rows
        of a grid, see `cells`; or of the function
    statement
        what the tables give away, in whole sentences
    minutes
        of all processors together that it took; 0 = unknown
    """

    experiment: Experiment
    rows: Rows = field(repr=False)
    statement: list[str] = field(default_factory=list, repr=False)
    minutes: float = 0.0

    @property
    def failures(self) -> list[str]:
        """Messages of runs that failed."""
        return [message for row in self.rows for message in row.get("failures", ())]

    @cached_property
    def cells(self) -> Rows:
        """The rows with what follows from them."""
        return claims.completed(self.experiment, self.rows) if self.experiment.parts else self.rows

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdicts on the claims."""
        of = self.experiment
        if of.parts:
            beside = claims.printed_rows(of.paper) if of.paper else []
            return [claims.judge(key, CLAIMS[key], self.cells, beside) for key in of.expected]
        found = of.study.claims(self.rows) if self.rows else ()
        return [claims.verdict_of(*claim) for claim in found]

    @cached_property
    def tables(self) -> list[Table]:
        """The tables of a function, or of a grid one for each block; the paper's own comes last."""
        of = self.experiment
        found = [
            Table(
                table.title,
                tuple(field.title for field in table.fields),
                [
                    tuple(_shown(row, field) for field in table.fields)
                    for row in filter(table.has, self.rows)
                ],
                left=(0,),
            )
            for table in of.tables
        ]
        order = {title: k for k, title in enumerate(t for p in of.parts for t in p.methods)}
        for name in dict.fromkeys(part.block for part in of.parts):
            mine = [cell for cell in self.cells if cell["block"] == name]
            mine.sort(key=lambda cell: order[cell["title"]])
            shown = dict.fromkeys(m for p in of.parts if p.block == name for m in p.metrics)
            found += [_block(name, mine, metric) for metric in shown if mine]
        if paper := of.paper:
            lines = [(name, *map(_printed, values)) for name, values in paper.rows.items()]
            names = "network" if of.parts else "method"
            found.append(Table(paper.caption, (names, *paper.columns), lines, left=(0,)))
        return found

    @property
    def notes(self) -> list[str]:
        """Return the lines that a reader must know, and those that the tables give away."""
        legend = [LEGEND] if self.experiment.parts else []
        return [*legend, *self.experiment.notes, *self.statement]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `NAME.json`: strict JSON, metrics as fractions."""
        of = self.experiment
        cells = [r | {"epsilon": strict(r["epsilon"])} for r in self.cells] if of.parts else []
        return {
            **{"schema": 1, "kind": "reproduction", "name": of.name, "title": of.title},
            "cells": cells,
            "rows": [] if cells else self.rows,
            "claims": [asdict(verdict) for verdict in self.verdicts],
            "notes": list(of.notes),
            "statement": self.statement,
            "minutes": self.minutes,
            "versions": versions(),
        }

    def to_markdown(self) -> str:
        """Tables, claims and notes."""
        parts = [f"## {self.experiment.title}\n", *map(markdown, self.tables)]
        parts.append("### Claims\n\n" + "".join(f"* {v}\n" for v in self.verdicts))
        return "\n".join([*parts, "".join(f"* {line}\n" for line in self.notes)])

    def save(self, out: str | Path) -> None:
        """Write NAME.json, NAME.md and NAME.csv: all or none."""
        keys = CSV_KEYS if self.experiment.parts else None

        def write(folder: Path) -> None:
            (folder / f"{self.experiment.name}.md").write_text(self.to_markdown(), "utf-8")
            text = csv_text(self.cells, keys)
            (folder / f"{self.experiment.name}.csv").write_text(text, "utf-8")

        kind_of(self.experiment.name).write(out, self.to_json(), beside=write, report=False)


def kind_of(name: str) -> Kind:
    """Return the kind of the folder that holds an experiment's results."""
    return Kind(name, {f"{name}.json": "kind"}, (f"{name}.md", f"{name}.csv"))


# -- tables --------------------------------------------------------------------------------------


def _shown(row: Record, field: Field) -> str:
    value = row.get(field.key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:g}" if field.digits is None else f"{field.factor * value:,.{field.digits}f}"
    return str(value)


def _printed(value: Sequence[float]) -> str:
    return f"{value[0]:g}" + (f" ({value[1]:g})" if len(value) > 1 else "")


def pivot(
    title: str,
    rows: Rows,
    heads: Sequence[str],
    line: Callable[[Record], tuple[str, ...]],
    column: str,
    shown: Callable[[Record], str],
) -> Table:
    """Lay rows out with a column for each value of a key, and a line for each `line` (`heads`)."""
    found: dict[tuple[str, ...], dict[Any, str]] = {}
    for row in rows:
        found.setdefault(line(row), {})[row[column]] = shown(row)
    values = dict.fromkeys(row[column] for row in rows)
    lines = [(*key, *(of.get(value, "") for value in values)) for key, of in found.items()]
    return Table(title, (*heads, *map(str, values)), lines, left=tuple(range(len(heads))))


def _block(title: str, cells: Rows, metric: str) -> Table:
    """Return a metric of each method; baselines have no settings: a line of their own."""
    fitted = [c for c in cells if not c["baseline"]]
    titles = {c["title"] for c in fitted}
    varied = [k for k in VARIED if len({(c["title"], c[k]) for c in fitted}) > len(titles)]

    def line(cell: Record) -> tuple[str, ...]:
        words = (VARIED[k].format(cell[k]) for k in varied if cell[k] not in (None, math.inf))
        return (", ".join(filter(None, (cell["network"], cell["row"], *words))),)

    if metric != "classwise_ece":
        title += f": {metric.replace('ece', 'ECE')}, %"
    return pivot(title, cells, ("network",), line, "title", partial(_entry, metric))


def _entry(metric: str, cell: Record) -> str:
    if cell["failures"] or metric not in cell:
        return "failed" if cell["failures"] else ""
    text = f"{100 * fmean(cell[metric]):.3f}"
    if len(cell[metric]) > 1:
        text += f" ({100 * claims.spread(cell[metric]):.3f})"
    return text + (MARK if cell["loses_accuracy"] else "")


# -- running -------------------------------------------------------------------------------------

ASSIGNED, CLIENTS = "dirichlet:0.1", 100
"""Partition and clients of a part that names none."""


def reproduce(
    name: str,
    *,
    seeds: int | None = None,
    jobs: int | None = None,
    features: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Run an experiment of the papers again.

    Parameters
    ----------
    name
        of `spec.EXPERIMENTS`
    seeds
        how many, from 0; None = the experiment's own, 5 as in the paper
    jobs
        processes; None = the cores that may be used
    features
        file of features, for an experiment that takes one
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
        An unknown name or option; nothing ran.
    """
    found, begun = experiment(name), _seconds()
    if seeds is not None:
        integer("seeds", seeds, 1)
    if found.features and features is None:
        raise InputError(f"{name} needs --features FILE: {found.features}, as zhang.md says")
    if out is not None:
        claim(path_of(out), kind_of(name), overwrite=overwrite)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooLittle)  # what noise drowns is what is shown
        if found.parts:
            result = _grid(found, seeds or found.seeds, jobs, progress)
        else:
            takes = inspect.signature(found.study.rows).parameters
            for option, chosen in {"seeds": seeds, "features": features}.items():
                if chosen is not None and option not in takes:
                    raise InputError(f"{name} has no choice of {option}; leave out --{option}")
            asked: Any = {"seeds": seeds or found.seeds or None, "features": features}
            asked |= {"jobs": jobs, "progress": progress, "options": found.options}
            given: Any = {k: v for k, v in asked.items() if v is not None and k in takes}
            logging.getLogger("flwr").setLevel(logging.ERROR)  # Flower logs each message
            result = Reproduction(found, found.study.rows(**given))
    result = replace(result, minutes=max(0.1, round((_seconds() - begun) / 60, 1)))
    if out is not None:
        result.save(out)
    return result


def _seconds() -> float:
    """Return the processor seconds that this process and its ended children have used."""
    return sum(os.times()[:4])


def _grid(
    found: Experiment, seeds: int, jobs: int | None, progress: Progress | None
) -> Reproduction:
    """Run all parts, each a comparison of its own."""
    sources = {name: datasets.load(name) for name in found.networks}
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
        names = ((line, short[line["data"]].removesuffix(".npz")) for line in table.cells)
        rows += [claims.row_of(line, part, network) for line, network in names]
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
        if assigned := [name for name in sources if name not in own]:
            yield part, {"data": assigned, "partition": ASSIGNED, "clients": CLIENTS, **given}
        if own:
            yield part, {**given, "data": own, "partition": "natural", "clients": None}
