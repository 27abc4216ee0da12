"""What an experiment is: the TOML files under `experiments/configs`, read and checked."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from fedcal.checks import one_of
from fedcal.experiments.comparison.variant import Variant
from fedcal.experiments.config import read_toml
from fedcal.experiments.figures.panel import Sheet

CONFIGS = Path(__file__).resolve().parents[1] / "configs"

SETTINGS = ("rounds", "sampling_rate", "epsilon", "delta", "clients", "partition")
"""Options of `compare` that a part may set; each is a value or a list."""

RowsClaim: TypeAlias = tuple[str, bool | None, str] | tuple[str, bool | None, str, str]
"""What is claimed, whether it holds (None: nothing to tell it by), what was found; what the paper's
own numbers say of it."""

Rows: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True)
class Column:
    """A method in a table, or a curve of a figure.

    Attributes
    ----------
    method : as `compare` takes it, `fedbbq[weighting=none]`
    title : what the paper, or the table, calls it; no other method of the experiment has it
    """

    method: str
    title: str

    @property
    def variant(self) -> Variant:
        """The method with its parameters."""
        return Variant.parse(self.method)


@dataclass(frozen=True)
class Part:
    """Methods that are run with the same settings: a `compare` of its own.

    Attributes
    ----------
    name : of its folder
    columns : methods
    settings : of `SETTINGS`. Without `partition`, networks that come with clients are run with
        those, and others with 100 clients and Dirichlet(0.1)
    block : heading of the table that its columns stand in
    row : what tells its lines apart from those of other parts of the block; may be empty
    """

    name: str
    columns: tuple[Column, ...]
    settings: Mapping[str, Any]
    block: str = ""
    row: str = ""


@dataclass(frozen=True)
class Plot:
    """A panel of a figure.

    Attributes
    ----------
    title : the paper's name of it and what it shows
    part : whose cells are drawn; pooled baselines of all parts are lines across
    x : the setting along the axis: "rounds", "epsilon" or "partition"
    y : the metric
    """

    title: str
    part: str
    x: str
    y: str


@dataclass(frozen=True)
class GridExperiment:
    """Methods on networks, run by `compare`, and how to lay the results out.

    Attributes
    ----------
    name, title, about : on the command line; of the page; one line for the list
    networks : shipped data sets
    seeds : how many, from 0
    parts : what to run
    plots : panels of the figure, for each network; none = a table
    claims : keys of `claims.CLAIMS`
    paper : the paper's table beside it, in `maddock.toml`, or ""
    reference : title of the column that others are divided by, or ""
    notes : what a reader must know, a sentence each
    """

    name: str
    title: str
    about: str
    networks: tuple[str, ...]
    seeds: int
    parts: tuple[Part, ...]
    plots: tuple[Plot, ...] = ()
    claims: tuple[str, ...] = ()
    paper: str = ""
    reference: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Field:
    """A column of a table of rows.

    Attributes
    ----------
    key : of the row
    title : heading
    digits : after the point; None = a name or setting, which tells rows apart
    factor : times which a number is shown (100 for per cent)
    tolerance : relative; None = not checked against expected results
    """

    key: str
    title: str
    digits: int | None = None
    factor: float = 1.0
    tolerance: float | None = None


@dataclass(frozen=True)
class RowsTable:
    """Some of the rows, and some of their columns.

    Attributes
    ----------
    title : heading
    fields : columns
    where : key -> value that a row must have to be in it
    """

    title: str
    fields: tuple[Field, ...]
    where: Mapping[str, Any] = field(default_factory=dict)

    def has(self, row: Mapping[str, Any]) -> bool:
        """Whether a row stands in this table."""
        return all(row.get(k) == v for k, v in self.where.items())

    def select(self, rows: Rows) -> Rows:
        """The rows of this table."""
        return [row for row in rows if self.has(row)]


@dataclass(frozen=True)
class RowsExperiment:
    """A function that returns rows, and how to lay them out; see the package for its contract.

    Attributes
    ----------
    module : of this package, whose `rows` it is
    tables : how to lay them out; files have all keys of all rows
    paper : the paper's table beside it, in `maddock.toml`, or ""
    """

    name: str
    title: str
    about: str
    module: str
    tables: tuple[RowsTable, ...]
    paper: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> Callable[..., Rows]:
        """The function."""
        found: Callable[..., Rows] = self._home.rows
        return found

    @property
    def takes(self) -> frozenset[str]:
        """The options that the function takes."""
        return frozenset(inspect.signature(self.rows).parameters)

    @property
    def claims(self) -> Callable[[Rows], Sequence[RowsClaim]] | None:
        """The module's `claims`, if it has one."""
        found: Callable[[Rows], Sequence[RowsClaim]] | None
        found = getattr(self._home, "claims", None)
        return found

    @property
    def sheet(self) -> Callable[[Rows], Sheet | None] | None:
        """The module's `sheet`, if it has one: the figure of its rows."""
        found: Callable[[Rows], Sheet | None] | None = getattr(self._home, "sheet", None)
        return found

    @property
    def _home(self) -> Any:
        return importlib.import_module(f"fedcal.experiments.reproduce.{self.module}")


Experiment: TypeAlias = GridExperiment | RowsExperiment


def read_experiment(name: str) -> Experiment:
    """The experiment in `experiments/configs/NAME.toml`.

    Raises
    ------
    TypeError, ValueError
        The file does not say what an experiment needs; tests read all of them.
    """
    raw = read_toml(CONFIGS / f"{name}.toml")
    if "rows" in raw:
        tables = tuple(_table(t) for t in raw.pop("tables"))
        notes = tuple(raw.pop("notes", ()))
        return RowsExperiment(name=name, module=raw.pop("rows"), tables=tables, notes=notes, **raw)
    parts = tuple(_part(p) for p in raw.pop("parts"))
    plots = tuple(Plot(**p) for p in raw.pop("plots", ()))
    raw |= {k: tuple(raw.pop(k, ())) for k in ("networks", "claims", "notes")}
    return GridExperiment(name=name, parts=parts, plots=plots, **raw)


def _table(raw: dict[str, Any]) -> RowsTable:
    return RowsTable(fields=tuple(Field(**f) for f in raw.pop("fields")), **raw)


def _part(raw: dict[str, Any]) -> Part:
    columns = tuple(Column(**c) for c in raw.pop("methods"))
    words = {k: raw.pop(k) for k in ("name", "block", "row") if k in raw}
    settings = {k.replace("-", "_"): v for k, v in raw.items()}
    for key in settings:
        one_of("setting of a part", key, SETTINGS)
    return Part(columns=columns, settings=settings, **words)


@dataclass(frozen=True)
class Printed:
    """A table as the paper prints it.

    Attributes
    ----------
    caption : with its number
    columns : headings
    rows : name -> for each column, (value,) or (mean, std)
    epsilon : of its methods; None = without privacy
    """

    caption: str
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[Sequence[float]]] = field(repr=False)
    epsilon: float | None = None


def printed(table: str) -> Printed:
    """The table of Maddock et al. of that name: table2, table3, table6, table7."""
    raw = read_toml(Path(__file__).with_name("maddock.toml"))[table]
    return Printed(raw["caption"], tuple(raw["columns"]), raw["rows"], raw.get("epsilon"))
