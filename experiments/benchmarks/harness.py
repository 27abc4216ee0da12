"""One harness for all benchmarks: rows as they come, one table, JSON and Markdown of it."""

from __future__ import annotations

import argparse
import inspect
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

from rich.table import Table

from fedcal.errors import InputError
from fedcal.experiments.benchmarks import apart
from fedcal.experiments.files import to_json
from fedcal.experiments.runs import Row
from fedcal.experiments.terminal import console, print_table

OPTIONS: Mapping[str, tuple[type, str]] = {
    "quick": (bool, "small sizes, two repetitions, no targets"),
    "draws": (int, "of noise at a time"),
    "trials": (int, "runs in each of two worlds; trials of each of Luo's settings"),
    "error": (float, "that any row's bound is wrong"),
    "seed": (int, "of the attacked runs"),
    "every": (int, "every k-th of Luo's settings"),
    "plain": (int, "trials of the plain loop, for each setting and method"),
    "data": (str, "shipped names, with commas"),
    "seeds": (int, "of each candidate"),
    "jobs": (int, "processes; default: the cores that may be used"),
}
"""Option -> its type, and what it means; the defaults are those of `Benchmark.rows`."""

_PACKAGES = ("fedcal", "numpy", "scipy", "flwr", "ray", "scikit-learn", "torch", "torchmetrics")


@dataclass(frozen=True)
class Benchmark:
    """What is measured, row by row, and how it is shown.

    Attributes
    ----------
    about : in a line
    rows : gives a row when it is there; its parameters are the benchmark's options
    lines : a row as lines of the table, by heading; what holds several values is not shown
    notes : sentences about all rows, for below the table
    passed : whether all rows are as they must be
    """

    about: str
    rows: Callable[..., Iterator[Row]]
    lines: Callable[[Row], list[Row]] = lambda row: [row]
    notes: Callable[[Sequence[Row]], list[str]] = lambda rows: []
    passed: Callable[[Sequence[Row]], bool] = lambda rows: True

    @property
    def options(self) -> list[str]:
        """Names of the options that it takes."""
        return list(inspect.signature(self.rows).parameters)


def machine() -> dict[str, Any]:
    """What the times depend on."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "versions": found | apart.versions(),
    }


def run(name: str, benchmark: Benchmark, options: Mapping[str, Any], out: Path) -> bool:
    """Measure, show, and write `NAME.json` (after every row) and `NAME.md`.

    Returns
    -------
    Whether all rows are as they must be.
    """
    out.mkdir(parents=True, exist_ok=True)
    here, rows, lines = machine(), list[Row](), list[Row]()
    for row in benchmark.rows(**options):
        rows.append(row)
        lines += benchmark.lines(row)
        print(f"[{len(rows)}] " + "  ".join(map(text, row.values())), file=sys.stderr, flush=True)
        content = {"benchmark": name, "options": options, "machine": here, "rows": rows}
        (out / f"{name}.json").write_text(to_json(content), "utf-8")
    headings = [h for h in dict.fromkeys(chain(*lines)) if any(text(n.get(h)) for n in lines)]
    numbers = [h for h in headings if any(isinstance(n.get(h), (int, float)) for n in lines)]
    table = [[text(n.get(h)) for h in headings] for n in lines]
    notes = benchmark.notes(rows)
    notes.append(
        f"{here['cores']} cores, {here['platform']}; "
        + ", ".join(f"{k} {v or 'not installed'}" for k, v in here["versions"].items())
        + (". Small sizes (--quick): no targets" if options.get("quick") else "")
        + ". Compare ratios, not times of different runs."
    )
    to = console()
    shown = Table(pad_edge=False, padding=(0, 1))
    for heading in headings:
        shown.add_column(heading, justify="right" if heading in numbers else "left")
    for cells in table:
        shown.add_row(*cells)
    print_table(to, shown)
    to.print("\n".join([*notes, f"written to {out}/"]))
    rule = ["---:" if h in numbers else "---" for h in headings]
    page = ["| " + " | ".join(cells) + " |" for cells in (headings, rule, *table)]
    (out / f"{name}.md").write_text("\n".join([*page, "", *notes, ""]), "utf-8")
    return benchmark.passed(rows)


def text(value: Any) -> str:
    """A value as people read it; what holds several values is not shown."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value) if isinstance(value, (int, str)) else ""


def command(
    benchmarks: Mapping[str, Benchmark], arguments: Sequence[str] | None, about: str
) -> int:
    """The command line; the exit code is 1 if a benchmark found what must not be."""
    listed = "\n".join(f"  {name:10}{b.about}" for name, b in benchmarks.items())
    parser = argparse.ArgumentParser(
        prog="python -m fedcal.experiments.benchmarks",
        description=f"{about}\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = next(iter(benchmarks))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {default}")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for the files")
    parser.add_argument("--only", action="append", help="a row of `bench`; repeatable")
    for key, (kind, text) in OPTIONS.items():
        takers = [name for name, b in benchmarks.items() if key in b.options]
        how: dict[str, Any] = {"action": "store_true"} if kind is bool else {"type": kind}
        parser.add_argument(f"--{key}", default=None, help=f"{text} ({', '.join(takers)})", **how)
    given = {k: v for k, v in vars(parser.parse_args(arguments)).items() if v is not None}
    names, out = given.pop("names") or [default], given.pop("out")
    for name in names:
        if name not in benchmarks:
            parser.error(f"no benchmark {name!r}; there are {', '.join(benchmarks)}")
    for key in given:
        if not any(key in benchmarks[name].options for name in names):
            parser.error(f"--{key} is no option of {', '.join(names)}")
    passed = True
    for name in dict.fromkeys(names):
        chosen = benchmarks[name]
        options = {k: v for k, v in given.items() if k in chosen.options}
        try:
            passed &= run(name, chosen, options, out)
        except InputError as e:
            parser.error(str(e))
    return 0 if passed else 1
