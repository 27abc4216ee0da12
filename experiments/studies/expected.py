"""The results that ship: what `--check` expects, and what text in README and docs is made from.

A file `expected/NAME.json` for each experiment: the numbers, and which commit made them. What the
papers print and which claims are expected to hold are in the study files, kept by hand, which
nothing here writes.

`--check` says, a line each, where a result is not what ships, and a verdict not what is expected.
The same seeds give the same numbers on one machine with one set of versions. Elsewhere the last
digits may differ, so each number has a tolerance far below its spread over seeds. Values are kept
by seed: a run with fewer seeds is checked by those that it has, and its verdicts are not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import filter as filter_names
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from experiments.studies import spec
from experiments.studies.claims import METRICS, SETTINGS, spread, without_failures
from experiments.studies.run import Reproduction
from experiments.studies.spec import Experiment, Record, Rows, experiment
from fedcal.core.checks import InputError
from fedcal.core.options import strict
from fedcal.storage.atomic import atomic_file

FOLDER = Path(__file__).with_name("expected")

Key: TypeAlias = tuple[str, ...]
Values: TypeAlias = Mapping[str, tuple[Any, float]]
"""Key of a row -> its value, or its values over seeds, and the tolerance."""


def content(result: Reproduction) -> Rows:
    """Return what ships: keys and values of a grid's rows, or the whole rows of all tables."""
    if result.failures:
        raise InputError(f"runs failed, the first with: {result.failures[0]}")
    checked(result.experiment, result.rows)
    if result.experiment.parts:
        kept = ({k: v for k, v in row.items() if k != "failures"} for row in result.rows)
        return [row | {"epsilon": strict(row["epsilon"])} for row in kept]
    return [
        {k: float(f"{v:.8g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in result.rows
        if any(table.has(row) for table in result.experiment.tables)
    ]


def shipped(name: str) -> Reproduction:
    """Return the shipped results, as `reproduce` gave them.

    Raises
    ------
    InputError
        There are none of that name.
    """
    return restored(name, read(name)["results"])


def restored(name: str, rows: Rows) -> Reproduction:
    """Return the results that a file's rows hold."""
    found = experiment(name)
    if found.parts:
        rows = [{"failures": []} | row | {"epsilon": float(row["epsilon"])} for row in rows]
    return Reproduction(found, rows)


def minutes(name: str) -> float:
    """Return the processor minutes that a study took; 0 = unknown."""
    return float(read(name).get("minutes", 0.0))


def read(name: str) -> Record:
    """Read a file's `commit`, `minutes` and `results`; InputError if there is none."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        raise InputError(f"there are no expected results of {name}")
    found: Record = json.loads(path.read_text("utf-8"))
    rows = [
        dict(zip(table["columns"], row, strict=True))
        for table in found["results"]
        for row in table["rows"]
    ]
    return found | {"results": rows}


def write(name: str, results: Rows, commit: str, minutes: float = 0.0) -> None:
    """Write a file, one result a line: rows with the same keys are a table of their values."""
    tables = []
    for keys, rows in groupby(results, key=list):
        lines = ",\n".join(_compact(list(row.values())) for row in rows)
        tables.append(f'{{"columns":{_compact(keys)},"rows":[\n{lines}\n]}}')
    facts = {"schema": 4, "name": name, "commit": commit, "minutes": minutes}
    head = _compact(facts).removesuffix("}")
    with atomic_file(FOLDER / f"{name}.json") as file:
        file.write(f'{head},"results":[\n{",".join(tables)}\n]}}\n'.encode())


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


# -- the check -----------------------------------------------------------------------------------


def check(result: Reproduction, expected: Reproduction) -> list[str]:
    """List the deviations of a result, and of verdicts if it has the seeds for them."""
    found, of = deviations(result, expected), result.experiment
    seeds = (len(row["classwise_ece"]) for row in result.rows if of.parts)
    return found + (wrong_verdicts(result) if max(seeds, default=of.seeds) >= of.seeds else [])


def deviations(result: Reproduction, expected: Reproduction) -> list[str]:
    """List each row of `expected` that is elsewhere or missing, and each row that is new."""
    here, known = (checked(r.experiment, r.rows) for r in (result, expected))
    lines = []
    for key in dict.fromkeys((*known, *here)):
        name = ", ".join(filter(None, key))
        if key not in here or key not in known:
            lines.append(f"{name}: {'no result' if key in known else 'not among the expected'}")
            continue
        for column, (was, allowed) in known[key].items():
            value = here[key][column][0]
            if isinstance(was, list):  # over seeds
                value, was = (fmean(of[: min(len(was), len(value))]) for of in (value, was))
            numbers = all(type(v) in (int, float) for v in (value, was))
            if value != was and not (numbers and abs(value - was) <= allowed):
                now, then = (f"{v:.6g}" if isinstance(v, float) else repr(v) for v in (value, was))
                lines.append(f"{name}: {column} {now}, expected {then} (+- {allowed:.2g})")
    return lines


def tolerance(metric: str, values: Sequence[float]) -> float:
    """Return a tenth of the spread over seeds, plus a small share of the value itself."""
    return 0.1 * spread(values) + METRICS[metric] * fmean(values)


def checked(experiment: Experiment, rows: Rows) -> dict[Key, Values]:
    """Return the checked values of each row of a grid, or of each row of each table.

    Raises
    ------
    InputError
        Nothing tells two rows of a table apart.
    """
    found: dict[Key, Values] = {}
    for row in without_failures(rows) if experiment.parts else ():
        place = ("network", "part", "title", *(() if row["baseline"] else SETTINGS))
        key = tuple("" if row[k] is None else str(row[k]) for k in place)
        known = [metric for metric in METRICS if metric in row]
        found[key] = {metric: (row[metric], tolerance(metric, row[metric])) for metric in known}
    for table in experiment.tables:
        names = [f.key for f in table.fields if f.digits is None and f.tolerance is None]
        numbers = {f.key: f.tolerance for f in table.fields if f.tolerance is not None}
        for row in filter(table.has, rows) if numbers else ():
            key = (table.title, *(str(row.get(k)) for k in names))
            if key in found:
                raise InputError(f"{experiment.name}: two rows are called {', '.join(key[1:])}")
            found[key] = {k: (row.get(k), t * abs(row.get(k) or 0)) for k, t in numbers.items()}
    return found


def wrong_verdicts(result: Reproduction) -> list[str]:
    """List each verdict that is not as expected, and each that only one side has."""
    of, verdicts = result.experiment, {v.key: v for v in result.verdicts}
    missing = (key for key in of.expected if not filter_names(verdicts, key))
    lines = [f"{key}: expected, but not claimed" for key in missing]
    for key, verdict in verdicts.items():
        words = next((w for pattern, w in of.expected.items() if fnmatchcase(key, pattern)), {})
        if verdict.places and not words:
            lines.append(f"{key}: no verdict is expected; its study file should say one")
        for place in dict.fromkeys((*verdict.places, *words) if words else ()):
            holds, word = verdict.places.get(place), words.get(place, words.get(spec.EVERYWHERE))
            known = place != spec.EVERYWHERE or place in verdict.places or not of.parts
            none = spec.NO_DIFFERENCE if place in verdict.places else spec.UNDECIDED
            allowed = (none if holds is None else spec.WORDS[holds], spec.SEEDS)
            if known and word not in allowed:
                lines.append(f"{place}: {allowed[0]}, expected: {word}. {verdict.text}")
    return lines
