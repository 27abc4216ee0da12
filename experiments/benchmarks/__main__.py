"""Time our work beside our peers' and print medians and ratios: `make bench`.

A missed target is shown, it does not fail the run.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedcal.experiments.benchmarks import apart
from fedcal.experiments.benchmarks.timing import Skipped, Timing, Work, compare
from fedcal.experiments.benchmarks.work import WORKS
from fedcal.experiments.files import to_json

REPETITIONS = 7
HEADINGS = (
    *("work", "ours (median)", "least", "target", ""),
    *("peer", "peer (median)", "least", "peer / ours", "result: ours", "peer's"),
)
_LEFT = ("work", "", "peer", "result: ours", "peer's")
_PACKAGES = ("fedcal", "numpy", "scipy", "flwr", "ray", "scikit-learn", "torch", "torchmetrics")


@dataclass(frozen=True)
class Row:
    """One piece of work, timed."""

    name: str
    work: Work
    ours: Timing
    peers: Sequence[Timing | Skipped]

    @property
    def met(self) -> bool | None:
        """Whether our median is within the target; None without one."""
        return None if self.work.target is None else self.ours.median <= self.work.target

    def lines(self) -> list[list[str]]:
        """The row as people read it, one line for each peer."""
        target = "" if self.work.target is None else f"<= {shown(self.work.target)}"
        verdict = {None: "", True: "met", False: "missed"}[self.met]
        head = [self.work.title, shown(self.ours.median), shown(self.ours.least), target, verdict]
        worth = _worth(self.ours.values)
        lines = [[*head, *self._peer(peer), worth, _peer_worth(peer)] for peer in self.peers]
        lines = lines or [[*head, "", "", "", "", worth, ""]]
        return [lines[0], *([""] * 5 + line[5:9] + ["", line[10]] for line in lines[1:])]

    def _peer(self, peer: Timing | Skipped) -> list[str]:
        if isinstance(peer, Skipped):
            return [peer.name, "skipped", "", ""]
        ratio = f"{peer.median / self.ours.median:.2f}"
        return [peer.name, shown(peer.median), shown(peer.least), ratio]

    def to_json(self) -> dict[str, Any]:
        """The row as numbers."""
        return {
            "name": self.name,
            "work": self.work.title,
            "target": self.work.target,
            "met": self.met,
            "ours": _numbers(self.ours),
            "peers": [
                {"name": peer.name, "skipped": peer.reason}
                if isinstance(peer, Skipped)
                else _numbers(peer) | {"ratio": peer.median / self.ours.median}
                for peer in self.peers
            ],
        }


def shown(seconds: float) -> str:
    """Seconds with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _worth(values: Mapping[str, float]) -> str:
    return ", ".join(f"{k} {v if isinstance(v, int) else f'{v:.9g}'}" for k, v in values.items())


def _peer_worth(peer: Timing | Skipped) -> str:
    return peer.reason if isinstance(peer, Skipped) else _worth(peer.values)


def _numbers(timing: Timing) -> dict[str, Any]:
    return {
        "name": timing.name,
        "median": timing.median,
        "min": timing.least,
        "repetitions": len(timing.seconds),
        "values": timing.values,
    }


def time_one(name: str, *, quick: bool) -> Row:
    """Prepare the data of one piece of work and time everybody on it."""
    work = WORKS[name](quick)
    if quick:
        work = replace(work, target=None)
    ours, *others = compare((work.ours, *work.peers), 2 if quick else REPETITIONS)
    if isinstance(ours, Skipped):
        raise RuntimeError(f"{name}: {ours.reason}")
    return Row(name, work, ours, others)


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


def as_table(rows: Sequence[Row]) -> Table:
    """The table for the terminal."""
    table = Table(pad_edge=False, padding=(0, 1))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in _LEFT else "right")
    for row in rows:
        table.add_section()
        for line in row.lines():
            table.add_row(*line)
    return table


def as_markdown(rows: Sequence[Row], said: str) -> str:
    """The table for a page."""
    lines = ["| " + " | ".join(HEADINGS) + " |"]
    lines.append("|" + "|".join("---" if h in _LEFT else "---:" for h in HEADINGS) + "|")
    lines += ["| " + " | ".join(line) + " |" for row in rows for line in row.lines()]
    return "\n".join([*lines, "", said, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Time, show, write `bench.json` and `bench.md`."""
    parser = argparse.ArgumentParser(
        prog="python -m fedcal.experiments.benchmarks", description=__doc__
    )
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for the files")
    parser.add_argument(
        "--only", choices=list(WORKS), action="append", help="this work; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, two repetitions")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    _quiet_flower()
    rows = []
    names = options.only or list(WORKS)
    for i, name in enumerate(names, 1):
        print(f"[{i}/{len(names)}] {name}", file=sys.stderr, flush=True)
        rows.append(time_one(name, quick=options.quick))
    here = machine()
    said = (
        f"{here['cores']} cores, {here['platform']}; "
        + ", ".join(f"{k} {v or 'not installed'}" for k, v in here["versions"].items())
        + (". Small sizes (--quick): no targets" if options.quick else "")
        + ". Medians of interleaved repetitions; compare ratios, not times of different runs."
    )
    content = {"quick": options.quick, "machine": here, "rows": [row.to_json() for row in rows]}
    (options.out / "bench.json").write_text(to_json(content), "utf-8")
    (options.out / "bench.md").write_text(as_markdown(rows, said), "utf-8")
    console = Console(width=max(Console().width, 200), highlight=False)
    console.print(as_table(rows))
    console.print(said, soft_wrap=True)
    console.print(f"written to {options.out}/", soft_wrap=True)


def _quiet_flower() -> None:
    import logging

    import flwr.serverapp  # noqa: F401  Flower sets its own level when it is imported

    logging.getLogger("flwr").setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
