"""What an experiment is: the form that `registry` reads the sections of study files into."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.runs.comparison.grid import Variant

SETTINGS = ("rounds", "sampling_rate", "epsilon", "delta", "clients", "partition")
"""Options of `compare` that a part may set; each is a value or a list."""

EVERYWHERE = "all networks"
"""Stands for every line of a table."""

NO_DIFFERENCE: Literal["no difference"] = "no difference"
"""Of what is compared, beyond noise and what matters: the claim neither holds nor fails."""

NOT_TOLD = "not told here"
"""Of a claim that nothing here tells by."""

Told: TypeAlias = bool | Literal["no difference"] | None
"""Whether a claim holds; None = nothing to tell it by."""

RowsClaim: TypeAlias = tuple[str, Told, str] | tuple[str, Told, str, str]
"""What is claimed, whether it holds, what was found; what the paper's own numbers say of it."""

Record: TypeAlias = dict[str, Any]
"""A row of plain values."""

Rows: TypeAlias = list[Record]


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper whose module has several.

    Attributes
    ----------
    rows
        measures; see the package for its parameters
    claims
        what is said of the rows
    sheet
        the figure of the rows
    """

    rows: Callable[..., Rows]
    claims: Callable[[Rows], Iterable[RowsClaim]] | None = None
    sheet: Callable[[Rows], Sheet | None] | None = None


@dataclass(frozen=True)
class Part:
    """Methods that are run with the same settings: a `compare` of its own.

    Attributes
    ----------
    name
        of its folder
    methods
        title -> method as `compare` takes it, `fedbbq[weighting=none]`. The title is what the
        paper, or the table, calls it
    settings
        of `SETTINGS`. Without `partition`, networks that come with clients are run with
        those, and others with 100 clients and Dirichlet(0.1)
    block
        heading of the table that its columns stand in
    row
        what tells its lines apart from those of other parts of the block; may be empty
    """

    name: str
    methods: Mapping[str, str]
    settings: Mapping[str, Any]
    block: str = ""
    row: str = ""

    def title_of(self, name: str, settings: Mapping[str, Any]) -> str:
        """Return the title of a method with these parameters."""
        variants = {title: Variant.parse(method) for title, method in self.methods.items()}
        return next(
            title
            for title, variant in variants.items()
            if (variant.method, dict(variant.settings)) == (name, settings)
        )


@dataclass(frozen=True)
class Plot:
    """A panel of a figure.

    Attributes
    ----------
    title
        the paper's name of it and what it shows
    part
        whose rows are drawn; pooled baselines of all parts are lines across
    x
        the setting along the axis: "rounds", "epsilon" or "partition"
    y
        the metric
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
    caption
        with its number
    columns
        headings
    rows
        name -> for each column, (value,) or (mean, std)
    epsilon
        of its methods; inf = without privacy
    """

    caption: str
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[Sequence[float]]] = field(repr=False)
    epsilon: float = math.inf


@dataclass(frozen=True)
class Field:
    """A column of a table of rows.

    Attributes
    ----------
    key
        of the row
    title
        heading
    digits
        after the point; None = a name or setting, which tells rows apart
    factor
        times which a number is shown (100 for per cent)
    tolerance
        relative; None = not checked against expected results
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
    title
        heading
    fields
        columns
    where
        key -> value that a row must have to be in it
    checked
        whether tolerances of its columns count
    """

    title: str
    fields: tuple[Field, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    checked: bool = True

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return True if a row belongs to this table."""
        return all(row.get(k) == v for k, v in self.where.items())


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A grid of methods on networks, run by `compare`, or a function that returns rows.

    Attributes
    ----------
    name, title, about
        on the command line; of the page; one line for the list
    notes
        what a reader must know, a sentence each
    expected
        claim -> line of the table -> verdict, one of `registry.WORDS`, `registry.SEEDS`,
        `NO_DIFFERENCE` or `NOT_TOLD`;
        the claims of a grid are its keys, those of a function are named by their text
    paper
        the paper's table beside it
    parts
        of a grid, what to run; none = a function
    networks
        of a grid, shipped data sets
    seeds
        of a grid, how many, from 0
    plots
        of a grid, panels of the figure for each network; none = a table
    reference
        of a grid, title of the column that others are divided by, or ""
    module
        of this package, with a function `rows`, or MODULE:NAME for a `Study` in it; see the
        package for their contract
    tables
        of a function, how to lay rows out; files have all keys of all rows
    """

    name: str
    title: str
    about: str
    notes: tuple[str, ...] = ()
    expected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    paper: Printed | None = None
    parts: tuple[Part, ...] = ()
    networks: Sequence[str] = ()
    seeds: int = 0
    plots: tuple[Plot, ...] = ()
    reference: str = ""
    module: str = ""
    tables: tuple[RowsTable, ...] = ()

    @property
    def home(self) -> Any:
        """The `Study`, or the module, that has the functions."""
        name, _, study = self.module.partition(":")
        module = importlib.import_module(f"fedcal.experiments.research.studies.{name}")
        return getattr(module, study) if study else module
