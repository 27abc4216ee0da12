"""One harness for all benchmarks: rows as they come, one table, JSON and Markdown of it."""

from __future__ import annotations

import inspect
import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from fedcal.core.checks import one_of
from fedcal.core.pages import Table
from fedcal.experiments.report.tables import markdown, print_table
from fedcal.experiments.report.terminal import console
from fedcal.experiments.research.benchmarks import peers
from fedcal.experiments.research.benchmarks.timing import APART, Case, Contestant, apart, compare
from fedcal.experiments.runs.files import to_json
from fedcal.experiments.runs.sweep import Row

REPETITIONS = 7

Cases = Mapping[str, Callable[[bool], Case]]
"""Name of `--only` -> what makes the case, quick or not; its data live no longer than the row."""

_PACKAGES = [
    *("fedcal", "numpy", "scipy", "flwr", "ray", "scikit-learn", "torch", "opacus", "torchmetrics")
]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its rows and how they are shown.

    Attributes
    ----------
    about
        in a line
    rows
        gives a row when it is there; its parameters are the benchmark's options
    lines
        a row as lines of the table, by heading; what holds several values is not shown
    notes
        sentences about all rows, for below the table
    passed
        whether all rows are as they must be
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
    """Return the facts of this machine and its packages that times depend on."""
    (there,) = compare([Contestant("peers", apart("versions", {}, packages=APART), dict)], 1)
    packages = peers.versions(_PACKAGES)() | there.get("values", dict.fromkeys(APART))
    return {
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version(), **packages},
    }


def run(name: str, benchmark: Benchmark, options: Mapping[str, Any], out: Path) -> bool:
    """Measure, show, and write `NAME.json` (after every row) and `NAME.md`.

    Returns
    -------
    bool
        Whether all rows are as they must be.
    """
    out.mkdir(parents=True, exist_ok=True)
    here, rows, lines = machine(), list[Row](), list[Row]()
    for row in benchmark.rows(**options):
        rows.append(row)
        lines += benchmark.lines(row)
        for line in benchmark.lines(row):
            shown = (f"{heading} {text(value)}" for heading, value in line.items() if text(value))
            say(f"[{len(rows)}] {'; '.join(shown)}")
        content = {"benchmark": name, "options": options, "machine": here, "rows": rows}
        (out / f"{name}.json").write_text(to_json(content), "utf-8")
    headings = [h for h in dict.fromkeys(chain(*lines)) if any(text(n.get(h)) for n in lines)]
    words = tuple(
        k
        for k, h in enumerate(headings)
        if not any(isinstance(n.get(h), (int, float)) for n in lines)
    )
    table = Table(
        "", tuple(headings), [[text(n.get(h)) for h in headings] for n in lines], left=words
    )
    notes = benchmark.notes(rows)
    notes.append(
        f"{here['cores']} cores, {here['platform']}; "
        + ", ".join(f"{k} {v or 'not installed'}" for k, v in here["versions"].items())
        + (". Small sizes (--quick): no targets" if options.get("quick") else "")
        + ". Compare ratios, not times of different runs."
    )
    print_table(console(), table)
    console().print("\n".join([*notes, f"written to {out}/"]))
    page = "\n".join([markdown(table), *notes, ""])
    (out / f"{name}.md").write_text(page, "utf-8")
    return benchmark.passed(rows)


def say(line: str) -> None:
    """Print a line of progress, apart from the result."""
    print(line, file=sys.stderr, flush=True)


def text(value: Any) -> str:
    """Format a value for people; "" for several values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value) if isinstance(value, (int, str)) else ""


# -- ours beside peers' -------------------------------------------------------------------------


def beside(about: str, cases: Cases, long: Collection[str] = ()) -> Benchmark:
    """Time everybody on each case.

    Parameters
    ----------
    about
        the benchmark in a line
    cases
        what is timed
    long
        names of cases that are left out unless they are named, or all cases are wanted
    """
    return Benchmark(about, partial(_rows, cases, long), lines)


def _rows(
    cases: Cases,
    long: Collection[str],
    only: Sequence[str] | None = None,
    quick: bool = False,
    all: bool = False,
) -> Iterator[Row]:
    for name in only or ():
        one_of("only", name, cases)
    chosen = only or [name for name in cases if all or name not in long]
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for k, name in enumerate(chosen, 1):
        say(f"{k} of {len(chosen)}: timing {name}")
        yield time_one(name, cases[name], quick=quick)
    if left := [name for name in cases if not only and name not in chosen]:
        say(f"left out, because they take long: {', '.join(left)} (--all, or --only NAME)")


def time_one(name: str, make: Callable[[bool], Case], *, quick: bool) -> Row:
    """Prepare the data of one case and time everybody on it.

    Returns
    -------
    dict
        `name`, `work` (its title), `target` in seconds (or None), `met`, `ours` and `peers`: as
        `timing.compare`, and the `ratio` of peers' medians to ours; `took`, the seconds of all of
        it.
    """
    since = time.perf_counter()
    case = make(quick)
    target = None if quick else case.target
    ours, *others = compare(case.contestants, 2 if quick else REPETITIONS)
    if "skipped" in ours:
        raise RuntimeError(f"{name}: {ours['skipped']}")
    for peer in others:
        if "median" in peer:
            peer["ratio"] = peer["median"] / ours["median"]
    met = None if target is None else ours["median"] <= target
    took = round(time.perf_counter() - since, 1)
    head = {"name": name, "work": case.title or name, "target": target, "met": met}
    return {**head, "ours": ours, "peers": others, "took": took}


def lines(row: Row) -> list[Row]:
    """Return a line for each peer."""
    ours = row["ours"]
    head = {
        "work": row["work"],
        "ours (median)": _shown(ours["median"]),
        "least": _shown(ours["min"]),
        "target": "" if row["target"] is None else f"<= {_shown(row['target'])}",
        "": {None: "", True: "met", False: "missed"}[row["met"]],
        "result: ours": _values(ours),
    }
    peers = [
        {"peer": peer["name"], "peer (median)": "skipped", "peer's": peer["skipped"]}
        if "skipped" in peer
        else {
            "peer": peer["name"],
            "peer (median)": _shown(peer["median"]),
            "peer's least": _shown(peer["min"]),
            "peer / ours": peer["ratio"],
            "peer's": _values(peer),
        }
        for peer in row["peers"]
    ]
    return [{**head, **first} for first in peers[:1] or [{}]] + peers[1:]


def _shown(seconds: float) -> str:
    """Seconds with three digits and a unit."""
    unit, size = next((u for u in (("s", 1.0), ("ms", 1e-3)) if seconds >= u[1]), ("us", 1e-6))
    return f"{seconds / size:.3g} {unit}"


def _values(timed: Mapping[str, Any]) -> str:
    values = timed["values"].items()
    return ", ".join(f"{k} {v if isinstance(v, int) else f'{v:.9g}'}" for k, v in values)
