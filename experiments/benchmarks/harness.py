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
from pathlib import Path
from typing import Any

from rich.table import Table

from fedcal.errors import InputError
from fedcal.experiments.benchmarks import apart
from fedcal.experiments.files import to_json
from fedcal.experiments.terminal import console, print_table

Row = dict[str, Any]
"""What a benchmark measured, in plain values."""

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
    headings : of the table
    lines : a row as people read it; a line of the table is as long as `headings`
    left : headings of columns of text
    notes : sentences about all rows, for below the table
    passed : whether all rows are as they must be
    """

    about: str
    rows: Callable[..., Iterator[Row]]
    headings: Sequence[str]
    lines: Callable[[Row], list[list[str]]]
    left: Sequence[str] = ()
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
    here, rows, table = machine(), list[Row](), list[list[str]]()
    for row in benchmark.rows(**options):
        rows.append(row)
        table += benchmark.lines(row)
        print(f"[{len(rows)}] " + "  ".join(filter(None, table[-1])), file=sys.stderr, flush=True)
        content = {"benchmark": name, "options": options, "machine": here, "rows": rows}
        (out / f"{name}.json").write_text(to_json(content), "utf-8")
    notes = benchmark.notes(rows)
    notes.append(
        f"{here['cores']} cores, {here['platform']}; "
        + ", ".join(f"{k} {v or 'not installed'}" for k, v in here["versions"].items())
        + (". Small sizes (--quick): no targets" if options.get("quick") else "")
        + ". Compare ratios, not times of different runs."
    )
    to = console()
    print_table(to, as_table(benchmark, table))
    to.print("\n".join([*notes, f"written to {out}/"]))
    (out / f"{name}.md").write_text(as_markdown(benchmark, table, notes), "utf-8")
    return benchmark.passed(rows)


def as_table(benchmark: Benchmark, lines: Sequence[Sequence[str]]) -> Table:
    """The table for the terminal; a new row begins where the first column is not empty."""
    table = Table(pad_edge=False, padding=(0, 1))
    for heading in benchmark.headings:
        table.add_column(heading, justify="left" if heading in benchmark.left else "right")
    for line in lines:
        if not all(other[0] for other in lines) and line[0]:
            table.add_section()
        table.add_row(*line)
    return table


def as_markdown(benchmark: Benchmark, lines: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """The table for a page."""
    rule = ("---" if h in benchmark.left else "---:" for h in benchmark.headings)
    table = [benchmark.headings, list(rule), *lines]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in table), "", *notes, ""])


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
