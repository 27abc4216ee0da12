"""The results that ship: what `--check` expects, and what text in README and docs is made from.

A file `expected/NAME.json` for each experiment: the numbers, and which commit made them. What the
papers print and which claims are expected to hold are in the study files, kept by hand, which
nothing here writes. Results are flat there: values that many have are said once, and columns named
once (`packed`).

`python -m fedcal.experiments.research.studies.expected [NAME ...]` runs experiments (all) and
writes their files anew; then `python -m fedcal.experiments.research.studies.documents` writes
README and docs. Look at the difference before you keep it. With `--data FILE --called WORD` it
writes `NAME@WORD.json`: what an experiment gave on data that do not ship, for pages alone.
`--check` has nothing to do with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

from fedcal.core.checks import InputError, one_of
from fedcal.experiments.research.studies.cells import SHIPPED, rows_of
from fedcal.experiments.research.studies.check import checked
from fedcal.experiments.research.studies.registry import EXPERIMENTS, experiment
from fedcal.experiments.research.studies.result import Reproduction
from fedcal.experiments.research.studies.spec import Record, Rows
from fedcal.experiments.runs.files import in_json
from fedcal.storage.atomic import whole_file

FOLDER = Path(__file__).with_name("expected")
ROOT = Path(__file__).resolve().parents[3]


def content(result: Reproduction) -> Rows:
    """Return what ships: keys and values of a grid's rows, or the whole rows of all tables."""
    if result.failures:
        raise InputError(f"runs failed, the first with: {result.failures[0]}")
    checked(result.experiment, result.rows)
    if result.experiment.parts:
        kept = ({k: row[k] for k in SHIPPED} for row in result.rows)
        return [row | {"epsilon": in_json(row["epsilon"])} for row in kept]
    return [
        {k: float(f"{v:.8g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in result.rows
        if any(table.has(row) for table in result.experiment.tables)
    ]


def shipped(name: str) -> Reproduction:
    """Return the shipped results, as `reproduce` gave them; `NAME@WORD` for those on other data.

    Raises
    ------
    InputError
        There are none of that name.
    """
    found, items = experiment(name.partition("@")[0]), read(name)["results"]
    return Reproduction(found, rows_of(found, items) if found.parts else items)


def read(name: str) -> Record:
    """Read a file's `commit` and `results`; InputError if there is none."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        raise InputError(f"there are no expected results of {name}")
    found: Record = json.loads(path.read_text("utf-8"))
    return found | {"results": unpacked(found["results"])}


def write(name: str, results: Rows, commit: str) -> None:
    """Write a file, one result a line; the whole file or what was there before."""
    head = json.dumps({"schema": 3, "name": name, "commit": commit}).removesuffix("}")
    groups = []
    for group in packed(results):
        lines = ",\n".join(_compact(row) for row in group.pop("rows"))
        groups.append(f'{_compact(group).removesuffix("}")},"rows":[\n{lines}\n]}}')
    with whole_file(FOLDER / f"{name}.json") as file:
        file.write(f'{head}, "results": [\n{",".join(groups)}\n]}}\n'.encode())


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def packed(results: Rows) -> list[Record]:
    """Results in a row with the same keys as a table: `columns`, and a list of values for each.

    Values that all of them have are in `same` instead. Mappings are flat, `after.ece.mean`, but
    for `settings`, which may be empty.
    """
    found = []
    for keys, group in groupby((dict(_flat(r)) for r in results), key=tuple):
        rows = list(group)
        same = {k: rows[0][k] for k in keys if len({_compact(r[k]) for r in rows}) == 1}
        values = [[v for k, v in r.items() if k not in same] for r in rows]
        found.append({"columns": keys, "same": same, "rows": values})
    return found


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping) and key != "settings":
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def unpacked(tables: Iterable[Mapping[str, Any]]) -> Rows:
    """Invert `packed`."""
    found: Rows = []
    for table in tables:
        for row in table["rows"]:
            values = iter(row)
            found.append({})
            for column in table["columns"]:
                *outer, last = column.split(".")
                place = reduce(lambda there, key: there.setdefault(key, {}), outer, found[-1])
                place[last] = table["same"][column] if column in table["same"] else next(values)
    return found


def commit_here() -> str:
    """Return the short commit of this code, with a "+" if the code has changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "*.py", "*.toml", "*.npz")
    return git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


def main(arguments: list[str] | None = None) -> None:
    """Run experiments and write their expected files into the package."""
    from fedcal.experiments.research.studies.comparisons import COMPARISONS, measure
    from fedcal.experiments.research.studies.run import reproduce

    parser = argparse.ArgumentParser(description="Write what `fedcal reproduce --check` expects.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="of experiments and comparisons (all)"
    )
    parser.add_argument("--jobs", type=int, help="processes (the usable cores)")
    parser.add_argument("--data", metavar="FILE", help="data that do not ship (with --called)")
    parser.add_argument("--called", metavar="WORD", help="what pages call these data")
    parser.add_argument("--seeds", type=int, help="with --data: how many (the experiment's own)")
    given = parser.parse_args(arguments)
    if (given.data is None) != (given.called is None):
        raise InputError("--data and --called go together")
    commit, known = commit_here(), (*EXPERIMENTS, *COMPARISONS)
    for name in given.names:
        one_of("experiment", name, known)
    for name in given.names if given.data is not None else ():
        result = reproduce(name, data=[given.data], seeds=given.seeds)
        write(f"{name}@{given.called}", content(result), commit)
    for name in (given.names or known) if given.data is None else ():
        compared = name in COMPARISONS
        found = measure(name, given.jobs) if compared else content(reproduce(name, jobs=given.jobs))
        write(name, found, commit)
        print(f"written: {FOLDER.name}/{name}.json", flush=True)


if __name__ == "__main__":
    main()
