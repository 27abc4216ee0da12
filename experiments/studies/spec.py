"""Experiments, read from the study files, one a paper and one for our own.

A section of a file is an experiment; `[printed.NAME]` are tables as the paper prints them,
`[items]` what becomes of each of the paper's items (`texts.Item`), and `[shared]` says once what
sections repeat: `methods` (title -> method), `columns` (key -> what `Field` holds), `tables` and
`texts` (name -> what stands for it in lists of tables, notes, and blocks). A section has

* `title`, `about`, `notes`, and `claims`: which we expect to hold, one word for every line of the
  table, or a word for each line ("all networks": those without one of their own). A key is that of
  a claim, or the text, where `*` stands for anything; "" = nothing is expected;
* of a grid, `networks`, `seeds` and `parts`. `methods` of a part are titles, or title -> method;
  those of the section come before those of the file;
* of a function, `rows` (MODULE:NAME of its `Study`), `options` and `tables`; `features`, where it
  needs a file of them; `seeds`, where they are not the function's own. Columns are keys, or a key
  with what differs; a table without has those of the section.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedcal.core.checks import check_kept, one_of
from fedcal.run.comparison.grid import Variant
from fedcal.storage.toml_files import read_toml

STUDIES = ("maddock", "own", "evaluation", "luo", "angelopoulos", "zhang")
FOLDER = Path(__file__).parent
DATA = FOLDER.parent / "data"
SETTINGS = ("rounds", "sampling_rate", "epsilon", "delta", "clients", "partition")
"""Options of `compare` that a part may set; each is a value or a list."""

EVERYWHERE = "all networks"
"""Stands for every line of a table."""

NO_DIFFERENCE: Literal["no difference"] = "no difference"
"""Result of a comparison within noise and what matters: the claim neither holds nor fails."""

UNDECIDED, SEEDS = "undecided", "depends on seeds"
WORDS = {True: "holds", False: "does not hold"}

Outcome: TypeAlias = bool | Literal["no difference"] | None
"""True if a claim holds; None = nothing to tell it by."""

RowsClaim: TypeAlias = tuple[str, Outcome, str] | tuple[str, Outcome, str, str]
"""The claim, whether it holds, what was found; what the paper's own numbers say of it."""

Record: TypeAlias = dict[str, Any]
"""A row of plain values."""

Rows: TypeAlias = list[Record]


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper: the function that measures it, and its claims."""

    rows: Callable[..., Rows]
    claims: Callable[[Rows], Iterable[RowsClaim]]


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
    metrics
        of `claims.METRICS`; each has a table
    row
        what tells its lines apart from those of other parts of the block; may be empty
    """

    name: str
    methods: Mapping[str, str]
    settings: Mapping[str, Any]
    block: str = ""
    row: str = ""
    metrics: Sequence[str] = ("classwise_ece",)

    def title_of(self, name: str, settings: Mapping[str, Any]) -> str:
        """Return the title of a method with these parameters."""
        for title, method in self.methods.items():
            variant = Variant.parse(method)
            if (variant.method, dict(variant.settings)) == (name, dict(settings)):
                return title
        raise KeyError(name)


@dataclass(frozen=True)
class Printed:
    """A table as the paper prints it: name of a row -> for each column (value,) or (mean, std).

    `epsilon` is that of its methods; inf = without privacy.
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
    key, title
        of the row, and heading
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
    """Some of the rows (`where`: key -> value), and some of their columns."""

    title: str
    fields: tuple[Field, ...]
    where: Mapping[str, Any] = field(default_factory=dict)

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
        claim -> line of the table -> verdict, one of `WORDS`, `SEEDS`, `NO_DIFFERENCE` or
        `UNDECIDED`; the claims of a grid are its keys, those of a function are named by their text
    paper
        the paper's table beside it
    parts, networks, seeds
        of a grid: what to run, on which shipped data or NAME.npz of `DATA`, how many seeds from 0;
        a function may have seeds in place of its own
    module
        MODULE:NAME of a `Study` in this package
    features
        what a file of features must hold that it is run with, as those do not ship; "" = none
    options
        of a function that takes `options`
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
    module: str = ""
    features: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[RowsTable, ...] = ()

    @property
    def study(self) -> Study:
        """The functions that measure and judge."""
        name, _, study = self.module.partition(":")
        found: Study = getattr(importlib.import_module(f"experiments.studies.{name}"), study)
        return found


def source_of(network: str) -> str:
    """Return the path of `DATA` that has a network of this name, or the name, of shipped data."""
    path = DATA / f"{network}.npz"
    return str(path) if path.is_file() else network


def study_file(name: str) -> dict[str, Any]:
    """Read a study file, unchecked."""
    return read_toml(FOLDER / f"{name}.toml")


EXPERIMENTS = {
    key: name
    for name in STUDIES
    for key in study_file(name)
    if key not in ("shared", "printed", "items")
}
"""Name on the command line -> study, in the order of the list."""


def experiment(name: str) -> Experiment:
    """Return the experiment of that name.

    Raises
    ------
    InputError
        There is none; the message lists those that there are.
    KeyError, TypeError
        The file does not say what an experiment needs; tests read all of them.
    """
    check_kept(f"python -m experiments {name}")
    one_of("experiment", name, EXPERIMENTS, "python -m experiments")
    file = study_file(EXPERIMENTS[name])
    shared, section = file.get("shared", {}), file[name]
    texts, paper = shared.get("texts", {}), section.pop("paper", None)
    claims = section.pop("claims", {})
    section |= {
        "name": name,
        "notes": tuple(texts.get(note, note) for note in section.pop("notes", ())),
        "expected": {key: _expected(words) for key, words in claims.items()},
        "paper": None if paper is None else Printed(**file["printed"][paper]),
    }
    if "rows" in section:
        columns, default = shared.get("columns", {}), section.pop("columns", ())
        tables = (shared["tables"][t] if isinstance(t, str) else t for t in section.pop("tables"))
        found = tuple(_table({"columns": default} | t, columns) for t in tables)
        return Experiment(module=section.pop("rows"), tables=found, **section)
    methods = shared.get("methods", {}) | section.pop("methods", {})
    section["parts"] = tuple(_part(p, methods, texts) for p in section["parts"])
    section["networks"] = [source_of(network) for network in section["networks"]]
    return Experiment(**section)


def _expected(words: str | Mapping[str, str]) -> Mapping[str, str]:
    places = words if isinstance(words, Mapping) else {EVERYWHERE: words} if words else {}
    for word in places.values():
        one_of("verdict", word, (*WORDS.values(), NO_DIFFERENCE, UNDECIDED, SEEDS))
    return places


def _table(raw: Mapping[str, Any], columns: Mapping[str, Any]) -> RowsTable:
    given = ({"key": c} if isinstance(c, str) else c for c in raw["columns"])
    fields = tuple(Field(**columns.get(c["key"], {}) | c) for c in given)
    return RowsTable(fields=fields, **{k: v for k, v in raw.items() if k != "columns"})


def _part(raw: dict[str, Any], methods: Mapping[str, str], texts: Mapping[str, str]) -> Part:
    titles = raw.pop("methods")
    mine = titles if isinstance(titles, Mapping) else {title: methods[title] for title in titles}
    words = {k: raw.pop(k) for k in ("name", "block", "row", "metrics") if k in raw}
    words["block"] = texts.get(words.get("block", ""), words.get("block", ""))
    settings = {one_of("setting", k.replace("-", "_"), SETTINGS): v for k, v in raw.items()}
    return Part(methods=mine, settings=settings, **words)
