"""Our work beside our peers', in turns: `make bench`.

A missed target is shown, it does not fail the run. Compare ratios, not times of different runs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks import federated, peers, pooled
from experiments.benchmarks.timing import APART, Contestant, apart, compare
from fedcal.core.checks import one_of
from fedcal.core.pages import Table
from fedcal.results.terminal import console, markdown, print_table
from fedcal.run.sweep import Row

CASES = {**pooled.CASES, **federated.CASES}
"""Name of `--only` -> what makes the case."""

LONG = ("temperature-large", "engine-round-500")
"""Benchmarks of `make bench-all` alone: `make bench` ends within ten minutes on two cores."""

REPETITIONS = 7
_PACKAGES = [
    *("fedcal", "numpy", "scipy", "flwr", "ray", "scikit-learn", "torch", "opacus", "torchmetrics")
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the cases that are named, show them, and write `bench.json` and `bench.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a case; repeatable")
    parser.add_argument("--all", action="store_true", help="cases that take long, too")
    parser.add_argument("--quick", action="store_true", help="small sizes, no targets")
    parser.add_argument("--out", type=Path, default=Path("bench-out"))
    given = parser.parse_args(arguments)
    chosen = given.only or [name for name in CASES if given.all or name not in LONG]
    for name in chosen:
        one_of("only", name, CASES)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    given.out.mkdir(parents=True, exist_ok=True)
    here, rows, lines = machine(), list[Row](), list[list[str]]()
    for name in chosen:
        print(f"timing {name}", file=sys.stderr, flush=True)
        rows.append(time_one(name, quick=given.quick))
        lines += lines_of(rows[-1])
        content = json.dumps({"machine": here, "rows": rows}, indent=1)
        (given.out / "bench.json").write_text(content, "utf-8")
    heads = ("work", "who", "median, ms", "least", "peer / ours", "target", "result")
    table = Table("", heads, lines, left=(0, 1, 6))
    versions = ", ".join(f"{k} {v or 'not installed'}" for k, v in here["versions"].items())
    note = f"{here['cores']} cores, {here['platform']}; {versions}"
    print_table(console(), table)
    console().print(f"{note}\nwritten to {given.out}/")
    (given.out / "bench.md").write_text(f"{markdown(table)}\n{note}\n", "utf-8")


def machine() -> dict[str, Any]:
    """Return the facts of this machine and its packages that times depend on."""
    (there,) = compare([Contestant("peers", apart("versions", {}, packages=APART), dict)], 1)
    packages = peers.versions(_PACKAGES)() | there.get("values", dict.fromkeys(APART))
    return {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "versions": {"python": platform.python_version(), **packages},
    }


def time_one(name: str, *, quick: bool) -> Row:
    """Prepare the data of one case, which live no longer than this, and time everybody on it.

    Returns
    -------
    dict
        `name`, `work` (its title), `target` in seconds (or None), `met`, `ours` and `peers`: as
        `timing.compare`, and the `ratio` of peers' medians to ours
    """
    case = CASES[name](quick)
    target = None if quick else case.target
    ours, *others = compare(case.contestants, 2 if quick else REPETITIONS)
    if "skipped" in ours:
        raise RuntimeError(f"{name}: {ours['skipped']}")
    for peer in others:
        if "median" in peer:
            peer["ratio"] = peer["median"] / ours["median"]
    met = None if target is None else ours["median"] <= target
    head = {"name": name, "work": case.title, "target": target, "met": met}
    return {**head, "ours": ours, "peers": others}


def lines_of(row: Row) -> list[list[str]]:
    """Return a line for us and for each peer; times in milliseconds."""
    aim = row["target"] and f"{1000 * row['target']:g}: {'met' if row['met'] else 'missed'}"
    lines = []
    for one in (row["ours"], *row["peers"]):
        times = [f"{1000 * one[key]:.3g}" if key in one else "" for key in ("median", "min")]
        ratio = f"{one['ratio']:.3g}" if "ratio" in one else ""
        values = ", ".join(f"{key} {value:.9g}" for key, value in one.get("values", {}).items())
        result = one.get("skipped", values)
        lines.append([row["work"], one["name"], *times, ratio, str(aim or ""), result])
    return lines


if __name__ == "__main__":
    main()
