"""Many methods, budgets, partitions and seeds in one table (`fedcal compare`); its statement."""

import math
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from typing import Any, NamedTuple

from fedcal import trust, units
from fedcal.core import checks, fitting
from fedcal.core.options import strict
from fedcal.datasets import Dataset
from fedcal.metrics.names import METRICS
from fedcal.results import comparison, page, terminal
from fedcal.results.files import versions
from fedcal.results.labels import family_of
from fedcal.results.statement import sentences, sets_noise
from fedcal.run import folders, load, simulation, sweep
from fedcal.run.comparison.grid import Cell, Grid, LeftOut, read_grid, resolve
from fedcal.run.config import merge, read_options, takes_options
from fedcal.run.engines.ray import cluster
from fedcal.run.sweep import CONFIG, ROWS, Row, Run
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.settings import settings_of


def composed(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Compose the budgets of all private runs on the same data (basic composition, Dwork 2006).

    Budgets add up where the protected units are the same: over all runs for natural clients (and
    for single rows), but only within a seed where a partition deals rows to clients, since a
    client of one deal, or a client's subject, is nobody in another.

    Returns
    -------
    list of dict
        For each data set and unit what the runs of the costliest deal spend (`epsilon`,
        `delta`), and the numbers of `deals` and `runs`.
    """
    totals: dict[tuple[str, str], dict[tuple[object, ...], tuple[float, float, int]]] = {}
    for cell in cells:
        c = cell.config
        if math.isinf(c.epsilon) or cell.variant.baseline:
            continue
        deals = totals.setdefault((c.data, c.unit), {})
        by_deal = units.UNITS[c.unit].per != "row" and c.partition != "natural"
        for seed in cell.seeds:
            key = (c.partition, c.clients, seed) if by_deal else ()
            epsilon, delta, runs = deals.get(key, (0.0, 0.0, 0))
            deals[key] = (epsilon + c.epsilon, delta + c.delta, runs + 1)
    found = []
    for (data, unit), deals in totals.items():
        epsilon, delta, _ = max(deals.values())
        one = {"data": data, "unit": unit, "epsilon": epsilon, "delta": min(1.0, delta)}
        found.append({**one, "deals": len(deals), "runs": sum(runs for *_, runs in deals.values())})
    return found


class Trusted(NamedTuple):
    """Facts that decide against whom a guarantee holds."""

    model: trust.Trust
    secure_aggregation: str
    quorum: float
    colluding: int


def statement(
    cells: Sequence[Cell], held_out: Sequence[str], left_out: Sequence[LeftOut] = ()
) -> dict[str, list[str]]:
    """Return sentences on the privacy cost of reading the table: `statement`, at most six, `more`.

    Parameters
    ----------
    cells
        resolved
    held_out
        names of data whose test rows are held out by seed
    left_out
        combinations of the grid that cannot be
    """
    short = comparison.names_of([{"data": c.config.data} for c in cells])
    fitted = [c for c in cells if not c.variant.baseline]
    private = [c for c in fitted if math.isfinite(c.config.epsilon)]
    guarantees: dict[Trusted, dict[str, None]] = {}
    for cell in private:
        if (plan := cell.plan) is not None:
            how, quorum = cell.config.secure_aggregation or "none", cell.config.quorum
            trusted = Trusted(plan.model, how, quorum, plan.federation.colluding)
            changed = f"{plan.protected.neighbours[plan.adjacency]} (unit {plan.unit})"
            guarantees.setdefault(trusted, {})[changed] = None
    family = family_of(c.variant.method for c in cells).name
    there = [v for k, v in units.UNITS.items() if any(c.config.unit == k for c in private)]
    found = sentences(
        kind="comparison",
        noun={"evaluate": "", "conformal": "thresholds"}.get(family, "calibrator"),
        held_out=[short[name] for name in held_out],
        guarantees=guarantees,
        mechanisms=dict.fromkeys(c.plan.mechanism.name for c in private if c.plan is not None),
        noise_source=private[0].config.noise_source if private else "",
        more_delta=" and more delta" if any(c.config.delta for c in private) else "",
        composed=[one | {"data": short[one["data"]]} for one in composed(cells)],
        looked=list(dict.fromkeys(short[c.config.data] for c in private if _looks(c))),
        exact=len(cells) - len(private),
        units=there,
        pairs=list(combinations(there, 2)),
        once=len(fitted) > len(private) and any(t.model.noise_by == "client" for t in guarantees),
    )
    found["more"] += dict.fromkeys(f"{c.variant.label}: {c.little}." for c in cells if c.little)
    kinds: dict[str, dict[str, None]] = {}
    for cell, why in left_out:
        reason = f"with {', '.join(cell.protection)}: {why}."
        kinds.setdefault(reason, {})[cell.variant.label] = None
    found["more"] += [f"Skipped: {', '.join(labels)} {why}" for why, labels in kinds.items()]
    return found


def _looks(cell: Cell) -> bool:
    """Return whether a cell's noise scales follow from the number of fit rows."""
    name = "rows_per_client"
    if cell.plan is not None and not sets_noise(cell.plan):
        return False
    return name in settings_of(cell.config.method) and name not in cell.config.set


def runs_of(cell: Cell) -> list[Run]:
    """Return the requests of a resolved cell, one for each seed, as strict JSON can hold them."""
    plain = cell.config.to_dict() | {"epsilon": strict(cell.config.epsilon)}
    del plain["engine"]  # all engines give the same bits
    return [plain | {"seed": seed} for seed in cell.seeds]


def run_row(run: Run, data: Dataset, **engine: str | None) -> Row:
    """Run one cell with one seed.

    Parameters
    ----------
    run
        from `runs_of`
    data
        what `run["data"]` names
    **engine
        `engine` and `ray_address` of `simulate`

    Returns
    -------
    Row
        A run that fails in operation (nobody answered) is a row, too: it holds `error`.
    """
    row: Row = {"run": run, "versions": versions()}
    config = merge({**run, "epsilon": float(run["epsilon"])}, engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said once for all runs, before they begin
        try:
            result = simulation.simulate(data, config=config)
            before, after = family_of([config.method]).metrics_of(result)
        except checks.FedcalError as e:
            return row | {"error": " ".join(str(e).split())}
    return row | {
        "before": before,
        "after": after,
        "privacy": {k: result.privacy[k] for k in sweep.PRIVACY},
        "communication": result.communication,
        "seconds": result.seconds,
    }


FORMS = ("latex", "markdown", "csv")
"""Forms of a table as a text."""


@dataclass(frozen=True, repr=False)
class Comparison(page.Displayable):
    """Methods beside each other, over budgets, partitions and seeds.

    Attributes
    ----------
    grid
        what was compared
    cells
        one for each line of the table, in its order, as in `compare.json`: plain values, ready
        for `pandas.json_normalize`. Without privacy epsilon is inf, for baselines too
    rows
        one for each run, in the same order, seeds innermost
    statement, more
        what the table gives away, in at most six sentences, and all else that is said of it
    report
        whether `save` writes a report and figures
    metrics
        columns of tables and panels of figures for a paper; () = the usual ones
    """

    grid: Grid
    cells: list[comparison.Line]
    rows: list[Row]
    statement: list[str]
    more: list[str]
    report: bool = True
    metrics: tuple[str, ...] = ()

    @property
    def failures(self) -> list[Row]:
        """Runs that failed in operation."""
        return [row for row in self.rows if "error" in row]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `compare.json`: strict JSON, infinity is the text "inf"."""
        config = self.grid.to_dict()
        return {
            "schema": 1,
            "kind": "comparison",
            "config": config | {"epsilon": strict(config["epsilon"])},
            "headline": self.verdict,
            "statement": self.statement,
            "more": self.more,
            "cells": [c | {"epsilon": strict(c["epsilon"])} for c in self.cells],
            "versions": versions(),
        }

    def to_markdown(self) -> str:
        """Return the headline, the table for people, and the statement below it."""
        sentences = "".join(f"* {line}\n" for line in self.statement)
        return f"{self.verdict}\n\n{self.to_table()}\n{sentences}"

    def to_table(self, form: str = "markdown") -> str:
        """Return the table as a text.

        Parameters
        ----------
        form
            "markdown"; "latex", for booktabs; or "csv": fractions with all digits, for programs

        Raises
        ------
        InputError
            There is no such form.
        """
        if checks.one_of("table", form, FORMS) == "csv":
            return terminal.csv_text(comparison.as_rows(self.cells))
        table = comparison.as_table(self.cells, self.metrics)
        if form == "markdown":
            return terminal.markdown(replace(table, title=""))
        return terminal.latex(table, table.title, *page.block_lines("comparison", "latex"))

    def save(self, out: str | Path) -> None:
        """Write `compare.json`, tables, report, grid and rows into a folder; all or none.

        Figures of an earlier comparison there go.
        """
        folders.COMPARISON.write(out, self.to_json(), beside=self._write, report=self.report)

    def _write(self, folder: Path) -> None:
        texts = {CONFIG: self.grid.to_toml(), "table.md": self.to_markdown()}
        texts |= {"table.csv": self.to_table("csv"), ROWS: "".join(map(sweep.line_of, self.rows))}
        for name, content in texts.items():
            (folder / name).write_text(content, "utf-8")
        if self.report:
            comparison.write_column(folder, self.cells, self.metrics)

    def __repr__(self) -> str:
        return f"<comparison: {len(self.cells)} lines, {len(self.rows)} runs; print() shows them>"

    def __str__(self) -> str:
        return f"{self.verdict}\n{self.to_table()}"

    def _lines(self) -> list[dict[str, Any]]:
        return comparison.as_rows(self.cells)

    @property
    def title(self) -> str:
        """Title of the report."""
        return f"Comparison of {len(comparison.finished(self.cells))} lines"

    @property
    def verdict(self) -> str:
        """The sentence that names the best method."""
        return comparison.headline(self.cells)

    @property
    def parts(self) -> list[Any]:
        """The table, then quality against epsilon and bytes."""
        cells = comparison.finished(self.cells)
        return [comparison.as_table(cells), *comparison.comparison_sheets(cells)]


@takes_options(Grid, "data")
def compare(
    data: Any = None,
    *,
    model: Any = None,
    config: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
    jobs: int | None = None,
    engine: str | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
    uncalibrated: bool = True,
    metrics: Sequence[str] = (),
    **options: Any,
) -> Comparison:
    """Run every method at every budget on every partition with every seed.

    Choosing among methods by their results on private rows is itself a release: see `statement`
    of what comes back.

    Parameters
    ----------
    data, model
        as in `simulate`, or a list of such data
    config
        TOML file with any of the options
    out
        folder for `rows.jsonl`, which grows while it runs, and, at the end, `compare.json`,
        `table.csv`, `table.md`, `report.html` and figures; None = write nothing. Those of an
        earlier comparison there stay until this one is saved. The hidden
        `.inputs.json`, with digests of the data, is for `resume` alone and not to be published
    resume
        go on with what `out` holds, and run again what failed. Options that are not given
        are those it was begun with; a grid may grow, but what was begun must stay part of it
    overwrite
        replace a comparison that `out` holds, once this one is saved; otherwise it is refused
    report
        False writes neither report nor figures; `fedcal report` makes them later
    jobs
        processes; None = the cores that may be used, or with another engine than "inline" 1 =
        this process
    engine
        of each run (None = "inline"); all give the same bits. With "ray" runs follow each other,
        and the clients of each are spread over the cluster
    ray_address
        of a Ray cluster, for the engine "ray"
    progress
        called after each run with runs finished, runs kept earlier among them, and all
    uncalibrated
        whether the model as it is (method none) has a line also where it is not asked
        for
    metrics
        columns of tables and panels of figures for a paper; () = the usual ones
    **options
        as on the command line. Each a value, a list, or text with commas: method (all;
        `fedbbq[weighting=none]` is fedbbq with a parameter), partition, clients, rounds,
        sampling_rate, epsilon (inf and 1), delta, unit, trust, mechanism. A single value: seeds
        (5) and seed (0), runs have seed .. seed + seeds - 1; quorum, noise_source,
        secure_aggregation, dropout, and set={...} for every method that has such a parameter.
        Baselines (none, pooled-...) appear once for each data set. At epsilon = inf nothing but
        exact sums is released, whatever delta and trust. Impossible combinations are skipped, with
        a warning and a line in `more`, if each value that is not a method is in some run

    Returns
    -------
    Comparison
        The same, but for seconds, wherever and with whatever interruptions it ran. A run that
        fails in operation is a row that says why, and the others go on.

    Raises
    ------
    InputError
        Anything in the whole grid that is not allowed; nothing ran.
    FedcalError
        A worker died, or nothing can be written; finished runs are kept in `out`.
    Interrupted
        Ctrl-C; finished runs are kept in `out`.
    """
    where: dict[str, Any] = {"engine": engine, "ray_address": ray_address}
    runs_by = merge(where).engine
    usual = fitting.usable_cores() if runs_by == "inline" else 1
    many = checks.integer("jobs", usual if jobs is None else jobs, 1)
    journal, read = None, dict[str, Any]()
    if out is not None:
        out = path_of(out)
        journal = sweep.Journal(out, resume=resume, overwrite=overwrite)
        folders.claim(out, folders.COMPARISON, overwrite=overwrite, resume=resume)
        read |= journal.begun
    elif resume:
        checks.needed("--out DIR", out, "--resume continues the comparison there")
    if config is not None:
        read = read_options(path_of(config))
    named, arrays = _named(data, model)
    grid = read_grid(read, {"data": named}, options)
    of = partial(load.load_any, class_names=grid.class_names, positive=grid.positive)
    given = (arrays.get(name, name) for name in grid.data)
    sources = {load.name_of(one, known := of(one)): known for one in given}
    grid = _with(grid, data=tuple(sources))  # as `simulate` names them
    kind, full = family_of(v.method for v in grid.variants), grid
    for metric in metrics:
        checks.one_of("metric", metric, kind.complete or (kind.columns if kind.best else METRICS))
    if uncalibrated and kind.name == "calibrate" and "none" not in grid.method:
        full = _with(grid, method=("none", *grid.method))
    cells, left_out = resolve(full, sources)
    for name, source in sources.items():
        if kind.name == "evaluate":
            load.warn_of_rows(source.evaluated(), f"{name}: rows")
        else:
            evaluated = load.test_part(source.split(grid.seed), grid.seed)
            load.warn_of_rows(evaluated, f"{name}: test rows")

    runs = [run for cell in cells for run in runs_of(cell)]
    kept: AbstractContextManager[dict[str, Row]] = nullcontext({})
    connected = cluster(ray_address) if runs_by == "ray" else nullcontext()
    if journal is not None:
        kept = journal.opened(grid.to_toml(), sources, runs)
    with connected, kept as rows:
        ordered = sweep.run_all(runs, sources, partial(run_row, **where), rows, progress, jobs=many)
        following = iter(ordered)  # one for each cell and seed, in this order
        lines = [comparison.summarise(c, list(islice(following, len(c.seeds)))) for c in cells]
        held_out = [name for name, source in sources.items() if source.test_scores is None]
        about = statement(cells, held_out, left_out)
        found = Comparison(grid, lines, ordered, **about, report=report, metrics=tuple(metrics))
        if journal is not None:
            found.save(journal.out)
    return found


def _with(grid: Grid, **values: Any) -> Grid:
    """Return a grid with other values; its fields are those of `Config`, which mypy cannot see."""
    return replace(grid, **values)


def _named(data: Any, model: Any) -> tuple[Any, dict[str, Dataset]]:
    """Return the value of the option `data`, and data sets that have no file or shipped name."""
    if model is None and (data is None or isinstance(data, str)):
        return data, {}
    named = (str, Path) if model is None else ()
    listed = data if isinstance(data, list) else [data]
    loaded = [d if isinstance(d, named) else load.load_any(d, model=model) for d in listed]
    names = [d.name if isinstance(d, Dataset) else str(d) for d in loaded]
    if twice := [name for name in names if names.count(name) > 1]:
        raise checks.InputError(f"data {twice[0]!r} occurs twice")
    return names, {d.name: d for d in loaded if isinstance(d, Dataset)}
