"""What `--check` expects: a file for each experiment, with a tolerance for each cell.

The same seeds give the same numbers on one machine with one set of versions. Elsewhere the last
digits may differ, so each cell has a tolerance far below its spread over seeds. Values are kept
by seed: a run with fewer seeds is checked by those that it has.

`python -m experiments.reproduce.expected [NAME ...]` runs experiments (all) and writes their
files anew. Look at the difference before you keep it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.files import to_json
from experiments.reproduce.cells import Cell, spread, whole
from experiments.reproduce.registry import EXPERIMENTS, experiment
from experiments.reproduce.result import Reproduction
from experiments.reproduce.spec import Rows, RowsExperiment
from fedcal.atomic import whole_file
from fedcal.errors import InputError

FOLDER = Path(__file__).with_name("expected")

METRICS = {"classwise_ece": "classwise ECE", "accuracy": "accuracy"}


def expected_of(result: Reproduction) -> dict[str, Any]:
    """The content of an expected file."""
    found: dict[str, Any] = {"schema": 1, "name": result.experiment.name}
    if isinstance(result.experiment, RowsExperiment):
        return found | {"rows": list(_checked_rows(result.experiment, result.rows))}
    if result.failures:
        raise InputError(f"runs failed, the first with: {result.failures[0]}")
    return found | {
        "cells": [
            {
                "key": list(cell.key),
                **{metric: list(getattr(cell, metric)) for metric in METRICS},
                "tolerance": {m: _tolerance(m, getattr(cell, m)) for m in METRICS},
            }
            for cell in result.cells
        ]
    }


def _tolerance(metric: str, values: Sequence[float]) -> float:
    """A tenth of the spread over seeds, and a little of the value itself."""
    share = 0.01 if metric == "classwise_ece" else 0.001
    return 0.1 * spread(values) + share * sum(values) / len(values)


def _checked_rows(experiment: RowsExperiment, rows: Rows) -> Iterator[dict[str, Any]]:
    """Key and checked values of each row of each table that has any.

    Raises
    ------
    ValueError
        Two rows have one key: the table lists something twice, or lacks a column.
    """
    seen: set[tuple[str, ...]] = set()
    for number, table in enumerate(experiment.tables):
        names = [f.key for f in table.fields if f.digits is None and f.tolerance is None]
        checked = {f.key: f.tolerance for f in table.fields if f.tolerance is not None}
        if not checked:
            continue
        for row in table.select(rows):
            key = (str(number), *(str(row.get(k)) for k in names))
            if key in seen:
                raise ValueError(f"{experiment.name}: two rows are called {', '.join(key[1:])}")
            seen.add(key)
            yield {
                "key": list(key),
                "values": {k: row.get(k) for k in checked},
                "tolerance": checked,
            }


def deviations(result: Reproduction, expected: Mapping[str, Any]) -> list[str]:
    """Where a result is not what was expected, a line each.

    Networks of the user's are not checked, nor are those that were not run.
    """
    if isinstance(result.experiment, RowsExperiment):
        return list(_row_deviations(result.experiment, result.rows, expected["rows"]))
    return list(_cell_deviations(result.cells, expected["cells"]))


def _cell_deviations(cells: Sequence[Cell], expected: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    known = {tuple(e["key"]): e for e in expected}
    networks = {e["key"][0] for e in expected}
    here = {c.key: c for c in whole(cells) if c.network in networks}
    ran = {c.network for c in cells}
    for key, entry in known.items():
        if key[0] not in ran:
            continue
        name = ", ".join(filter(None, key))
        if key not in here:
            yield f"{name}: no result"
            continue
        for metric, words in METRICS.items():
            then, now = entry[metric], getattr(here[key], metric)
            seeds = min(len(then), len(now))
            was, is_ = sum(then[:seeds]) / seeds, sum(now[:seeds]) / seeds
            tolerance = entry["tolerance"][metric]
            if not abs(is_ - was) <= tolerance:
                yield (
                    f"{name}: {words} {100 * is_:.3f} %, expected {100 * was:.3f} % "
                    f"(tolerance {100 * tolerance:.3f})"
                )
    for key in here.keys() - known.keys():
        yield f"{', '.join(filter(None, key))}: not among the expected results"


def _row_deviations(
    experiment: RowsExperiment, rows: Rows, expected: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    here = {tuple(r["key"]): r["values"] for r in _checked_rows(experiment, rows)}
    for entry in expected:
        key = tuple(entry["key"])
        name = ", ".join(key[1:])
        if key not in here:
            yield f"{name}: no result"
            continue
        for field, was in entry["values"].items():
            is_ = here[key][field]
            if not _near(is_, was, entry["tolerance"][field]):
                yield f"{name}: {field} {is_!r}, expected {was!r}"
    for key in here.keys() - {tuple(e["key"]) for e in expected}:
        yield f"{', '.join(key[1:])}: not among the expected results"


def _near(now: Any, then: Any, tolerance: float) -> bool:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (now, then))
    return abs(now - then) <= tolerance * abs(then) if numbers else bool(now == then)


def can_be_checked(name: str) -> bool:
    """Whether any number of an experiment is to be the same on every machine."""
    found = experiment(name)
    return not isinstance(found, RowsExperiment) or found.checked


def read_expected(name: str) -> Mapping[str, Any]:
    """The expected results of an experiment; InputError where there are none."""
    path = FOLDER / f"{name}.json"
    if not can_be_checked(name):
        raise InputError(f"no number of {name} is checked: leave out --check")
    if not path.is_file():
        raise InputError(f"there are no expected results of {name}")
    found: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def write_expected(result: Reproduction, path: Path) -> None:
    """Write what `--check` will expect from now on; the whole file or what was there before."""
    text = to_json(expected_of(result))
    with whole_file(path) as file:
        file.write(text.encode())


def main(arguments: list[str] | None = None) -> None:
    """Run experiments and write their expected files into the package."""
    from experiments.reproduce.run import reproduce

    parser = argparse.ArgumentParser(description="Write what `fedcal reproduce --check` expects.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments (all)")
    parser.add_argument("--jobs", type=int, help="processes (the usable cores)")
    given = parser.parse_args(arguments)
    for name in given.names or filter(can_be_checked, EXPERIMENTS):
        write_expected(reproduce(name, jobs=given.jobs), FOLDER / f"{name}.json")
        print(f"written: {FOLDER.name}/{name}.json")


if __name__ == "__main__":
    main()
