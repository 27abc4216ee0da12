"""What an experiment is: the forms that `registry` reads the study files into."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fedcal.experiments.comparison.grid import Variant
from fedcal.experiments.figures.panel import Sheet

SETTINGS = ("rounds", "sampling_rate", "epsilon", "delta", "clients", "partition")
"""Options of `compare` that a part may set; each is a value or a list."""

EVERYWHERE = "all networks"
"""Stands for every line of a table."""

RowsClaim: TypeAlias = tuple[str, bool | None, str] | tuple[str, bool | None, str, str]
"""What is claimed, whether it holds (None: nothing to tell it by), what was found; what the paper's
own numbers say of it."""

Record: TypeAlias = dict[str, Any]
"""A row of plain values."""

Rows: TypeAlias = list[Record]


@dataclass(frozen=True)
class TitledMethod:
    """A method in a table, or a curve of a figure.

    Attributes
    ----------
    method : as `compare` takes it, `fedbbq[weighting=none]`
    title : what the paper, or the table, calls it; no other method of the part has it
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
    columns: tuple[TitledMethod, ...]
    settings: Mapping[str, Any]
    block: str = ""
    row: str = ""


@dataclass(frozen=True)
class Plot:
    """A panel of a figure.

    Attributes
    ----------
    title : the paper's name of it and what it shows
    part : whose scores are drawn; pooled baselines of all parts are lines across
    x : the setting along the axis: "rounds", "epsilon" or "partition"
    y : the metric
    """

    title: str
    part: str
    x: str
    y: str


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


@dataclass(frozen=True, kw_only=True)
class ExperimentBase:
    """What all experiments have.

    Attributes
    ----------
    name, title, about : on the command line; of the page; one line for the list
    notes : what a reader must know, a sentence each
    expected : claim -> line of the table -> verdict, one of `claims.ALLOWED`; the claims of a grid
        are its keys, those of a function are named by their text
    paper : the paper's table beside it
    """

    name: str
    title: str
    about: str
    notes: tuple[str, ...] = ()
    expected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    paper: Printed | None = None


@dataclass(frozen=True, kw_only=True)
class GridExperiment(ExperimentBase):
    """Methods on networks, run by `compare`, and how to lay the results out.

    Attributes
    ----------
    networks : shipped data sets
    seeds : how many, from 0
    parts : what to run
    plots : panels of the figure, for each network; none = a table
    reference : title of the column that others are divided by, or ""
    """

    networks: tuple[str, ...]
    seeds: int
    parts: tuple[Part, ...]
    plots: tuple[Plot, ...] = ()
    reference: str = ""


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
    checked : whether tolerances of its columns count
    """

    title: str
    fields: tuple[Field, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    checked: bool = True

    def has(self, row: Mapping[str, Any]) -> bool:
        """Whether a row stands in this table."""
        return all(row.get(k) == v for k, v in self.where.items())

    def select(self, rows: Rows) -> Rows:
        """The rows of this table."""
        return [row for row in rows if self.has(row)]


@dataclass(frozen=True, kw_only=True)
class RowsExperiment(ExperimentBase):
    """A function that returns rows, and how to lay them out; see the package for its contract.

    Attributes
    ----------
    module : of this package, whose `rows` it is
    tables : how to lay them out; files have all keys of all rows
    """

    module: str
    tables: tuple[RowsTable, ...]

    @property
    def rows(self) -> Callable[..., Rows]:
        """The function."""
        found: Callable[..., Rows] = self._home.rows
        return found

    @property
    def takes(self) -> frozenset[str]:
        """The options that the function takes."""
        return frozenset(inspect.signature(self.rows).parameters)

    def claims(self, rows: Rows) -> Sequence[RowsClaim]:
        """What the module's `claims` says of rows; nothing if it has none."""
        found: Callable[[Rows], Sequence[RowsClaim]] | None = getattr(self._home, "claims", None)
        return found(rows) if found and rows else ()

    def sheet(self, rows: Rows) -> Sheet | None:
        """The figure of rows, if the module has a `sheet` for it."""
        found: Callable[[Rows], Sheet | None] | None = getattr(self._home, "sheet", None)
        return found(rows) if found and rows else None

    @property
    def _home(self) -> Any:
        return importlib.import_module(f"fedcal.experiments.reproduce.{self.module}")


Experiment: TypeAlias = GridExperiment | RowsExperiment
