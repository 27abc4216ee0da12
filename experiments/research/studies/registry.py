"""The experiments: sections of the study files, one file a paper, and one for our own.

A section is an experiment; `[comparisons.NAME]` are options of `fedcal compare` that pages quote,
`[printed.NAME]` tables as the paper prints them, and `[shared]` says once what sections of the
file repeat: `methods` (title -> method), `columns` (key -> what `spec.Field` holds), `tables` and
`texts` (name -> what stands for it in lists of tables, notes, and blocks). A section has

* `title`, `about`, `notes`, and `claims`: which we expect to hold, one word for every line of the
  table, or a word for each line ("all networks": those without one of their own). A key is that of
  a claim, or the text, where `*` stands for anything; "" = nothing is expected;
* of a grid, `networks`, `seeds`, `parts` and `plots`, see `spec.Experiment`. `methods` of a
  part are titles, or title -> method; those of the section come before those of the file;
* of a function, `rows` (its module) and `tables`, see `spec.RowsTable`. Columns are keys, or a key
  with what differs; a table without has those of the section.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal.core.checks import check_kept, one_of
from fedcal.experiments.research.studies.spec import (
    EVERYWHERE,
    NO_DIFFERENCE,
    NOT_TOLD,
    SETTINGS,
    Experiment,
    Field,
    Part,
    Plot,
    Printed,
    RowsTable,
)
from fedcal.storage.toml_files import read_toml

STUDIES = ("maddock", "own", "evaluation", "luo", "angelopoulos", "prediction_sets", "zhang")
FOLDER = Path(__file__).parent
WORDS = {True: "holds", False: "does not hold"}
SEEDS = "depends on seeds"
_SECTIONS = ("shared", "printed", "comparisons")  # which are no experiments


def study(name: str) -> dict[str, Any]:
    """Read a study file, unchecked."""
    return read_toml(FOLDER / f"{name}.toml")


EXPERIMENTS = {key: name for name in STUDIES for key in study(name) if key not in _SECTIONS}
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
    check_kept(f"fedcal reproduce {name}")
    file = study(EXPERIMENTS[one_of("experiment", name, EXPERIMENTS, "fedcal reproduce --list")])
    shared, section = file.get("shared", {}), file[name]
    texts = shared.get("texts", {})
    claims, paper = section.pop("claims", {}), section.pop("paper", None)
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
    section["plots"] = tuple(Plot(**p) for p in section.get("plots", ()))
    return Experiment(**section)


def _expected(words: str | Mapping[str, str]) -> Mapping[str, str]:
    places = words if isinstance(words, Mapping) else {EVERYWHERE: words} if words else {}
    for word in places.values():
        one_of("verdict", word, (*WORDS.values(), NO_DIFFERENCE, NOT_TOLD, SEEDS))
    return places


def _table(raw: Mapping[str, Any], columns: Mapping[str, Any]) -> RowsTable:
    given = ({"key": c} if isinstance(c, str) else c for c in raw["columns"])
    fields = tuple(Field(**columns.get(c["key"], {}) | c) for c in given)
    return RowsTable(fields=fields, **{k: v for k, v in raw.items() if k != "columns"})


def _part(raw: dict[str, Any], methods: Mapping[str, str], texts: Mapping[str, str]) -> Part:
    titles = raw.pop("methods")
    methods = titles if isinstance(titles, Mapping) else {title: methods[title] for title in titles}
    words = {k: raw.pop(k) for k in ("name", "block", "row") if k in raw}
    words["block"] = texts.get(words.get("block", ""), words.get("block", ""))
    settings = {k.replace("-", "_"): v for k, v in raw.items()}
    for key in settings:
        one_of("setting of a part", key, SETTINGS)
    return Part(methods=methods, settings=settings, **words)
