"""The results that ship: what `--check` expects, and what text in README and docs is made from.

A file `expected/NAME.json` for each experiment: the numbers, and which commit made them. What the
papers print and which claims are expected to hold are in files kept by hand (`maddock.toml`,
`verdicts.toml`), which nothing here writes.

The same seeds give the same numbers on one machine with one set of versions. Elsewhere the last
digits may differ, so each number has a tolerance far below its spread over seeds. Values are kept
by seed: a run with fewer seeds is checked by those that it has.

`python -m fedcal.experiments.reproduce.expected [NAME ...]` runs experiments (all) and writes their
files anew; then `python -m fedcal.experiments.reproduce.documents` writes README and docs. Look at
the difference before you keep it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.atomic import whole_file
from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.experiments.reproduce.cells import Cell, cells_of, spread, whole
from fedcal.experiments.reproduce.registry import EXPERIMENTS, experiment
from fedcal.experiments.reproduce.result import Reproduction
from fedcal.experiments.reproduce.spec import Rows, RowsExperiment

FOLDER = Path(__file__).with_name("expected")
ROOT = Path(__file__).resolve().parents[2]

METRICS = {"classwise_ece": "classwise ECE", "accuracy": "accuracy"}


def content(result: Reproduction) -> list[dict[str, Any]]:
    """What ships: key and values of each cell; or the rows that stand in any table, whole."""
    if isinstance(result.experiment, RowsExperiment):
        tables = result.experiment.tables
        _checked_rows(result.experiment, result.rows)
        return [
            {k: _digits(v) for k, v in row.items()}
            for row in result.rows
            if any(table.has(row) for table in tables)
        ]
    if result.failures:
        raise InputError(f"runs failed, the first with: {result.failures[0]}")
    return [
        {"key": list(cell.key), **{metric: list(getattr(cell, metric)) for metric in METRICS}}
        for cell in result.cells
    ]


def _digits(value: Any) -> Any:
    return float(f"{value:.8g}") if isinstance(value, float) else value


def shipped(name: str) -> Reproduction:
    """The results that ship, as `reproduce` gave them.

    Raises
    ------
    InputError
        There are none of that name.
    """
    found, items = experiment(name), read(name)["results"]
    if isinstance(found, RowsExperiment):
        return Reproduction(found, [], items, [])
    return Reproduction(found, cells_of(found, items), [], [])


def read(name: str) -> Mapping[str, Any]:
    """A file: `commit` and `results`; InputError where there is none."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        raise InputError(f"there are no expected results of {name}")
    found: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def write(name: str, results: Sequence[Mapping[str, Any]], commit: str) -> None:
    """Write a file, one result a line; the whole file or what was there before."""
    head = json.dumps({"schema": 2, "name": name, "commit": commit}).removesuffix("}")
    lines = ",\n".join(json.dumps(item, allow_nan=False) for item in results)
    with whole_file(FOLDER / f"{name}.json") as file:
        file.write(f'{head}, "results": [\n{lines}\n]}}\n'.encode())


def commit_here() -> str:
    """The commit of this code, short; with a "+" where the code has changed since."""

    def git(*words: str) -> str:
        told = subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
        )
        return told.stdout.strip()

    changed = git("status", "--porcelain", "--", "*.py", "*.toml", "*.npz")
    return git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


# -- deviations ----------------------------------------------------------------------------------


def deviations(result: Reproduction, expected: Reproduction) -> list[str]:
    """Where a result is not what was expected, a line each.

    Networks of the user's are not checked, nor are those that were not run.
    """
    if isinstance(result.experiment, RowsExperiment):
        return list(_row_deviations(result.experiment, result.rows, expected.rows))
    return list(_cell_deviations(result.cells, expected.cells))


def _tolerance(metric: str, values: Sequence[float]) -> float:
    """A tenth of the spread over seeds, and a little of the value itself."""
    share = 0.01 if metric == "classwise_ece" else 0.001
    return 0.1 * spread(values) + share * sum(values) / len(values)


def _cell_deviations(cells: Sequence[Cell], expected: Sequence[Cell]) -> Iterator[str]:
    known = {c.key: c for c in expected}
    networks = {c.network for c in expected}
    here = {c.key: c for c in whole(cells) if c.network in networks}
    ran = {c.network for c in cells}
    for key, cell in known.items():
        if cell.network not in ran:
            continue
        name = ", ".join(filter(None, key))
        if key not in here:
            yield f"{name}: no result"
            continue
        for metric, words in METRICS.items():
            then, now = getattr(cell, metric), getattr(here[key], metric)
            seeds = min(len(then), len(now))
            was, is_ = sum(then[:seeds]) / seeds, sum(now[:seeds]) / seeds
            tolerance = _tolerance(metric, then)
            if not abs(is_ - was) <= tolerance:
                yield (
                    f"{name}: {words} {100 * is_:.3f} %, expected {100 * was:.3f} % "
                    f"(tolerance {100 * tolerance:.3f})"
                )
    for key in here.keys() - known.keys():
        yield f"{', '.join(filter(None, key))}: not among the expected results"


def _checked_rows(experiment: RowsExperiment, rows: Rows) -> dict[tuple[str, ...], dict[str, Any]]:
    """Key -> checked values and their tolerance, of each row of each table.

    Raises
    ------
    InputError
        Nothing tells two rows of a table apart.
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for number, table in enumerate(experiment.tables):
        names = [f.key for f in table.fields if f.digits is None and f.tolerance is None]
        checked = {f.key: f.tolerance for f in table.fields if f.tolerance is not None}
        if not checked:
            continue
        for row in table.select(rows):
            key = (str(number), *(str(row.get(k)) for k in names))
            if key in found:
                raise InputError(f"{experiment.name}: two rows are called {', '.join(key[1:])}")
            found[key] = {k: (row.get(k), tolerance) for k, tolerance in checked.items()}
    return found


def _row_deviations(experiment: RowsExperiment, rows: Rows, expected: Rows) -> Iterator[str]:
    here, known = _checked_rows(experiment, rows), _checked_rows(experiment, expected)
    for key, values in known.items():
        name = ", ".join(key[1:])
        if key not in here:
            yield f"{name}: no result"
            continue
        for field, (was, tolerance) in values.items():
            is_ = here[key][field][0]
            if not _near(is_, was, tolerance):
                yield f"{name}: {field} {is_!r}, expected {was!r}"
    for key in here.keys() - known.keys():
        yield f"{', '.join(key[1:])}: not among the expected results"


def _near(now: Any, then: Any, tolerance: float) -> bool:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (now, then))
    return abs(now - then) <= tolerance * abs(then) if numbers else bool(now == then)


def main(arguments: list[str] | None = None) -> None:
    """Run experiments and write their expected files into the package."""
    from fedcal.experiments.reproduce.comparisons import COMPARISONS, measure
    from fedcal.experiments.reproduce.run import reproduce

    parser = argparse.ArgumentParser(description="Write what `fedcal reproduce --check` expects.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="of experiments and comparisons (all)"
    )
    parser.add_argument("--jobs", type=int, help="processes (the usable cores)")
    given = parser.parse_args(arguments)
    commit, known = commit_here(), (*EXPERIMENTS, *COMPARISONS)
    for name in given.names:
        one_of("experiment", name, known)
    for name in given.names or known:
        if name in COMPARISONS:
            write(name, measure(name, given.jobs), commit)
        else:
            write(name, content(reproduce(name, jobs=given.jobs)), commit)
        print(f"written: {FOLDER.name}/{name}.json", flush=True)


if __name__ == "__main__":
    main()
