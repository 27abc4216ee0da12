"""The main job on bundled real data: `make demo`.

ResNet-110 on CIFAR-10, 100 clients with Dirichlet(0.1) label skew, every method without privacy
and at user-level epsilon = 1, five seeds.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.commands import progress_bar, shown
from experiments.figures import reliability_figure, save_figure
from experiments.files import to_json
from experiments.result import SimulationResult
from experiments.simulation import simulate
from fedcal import datasets
from fedcal.metrics import Reliability

DATA = "resnet110-cifar10"
SEEDS = 5
BUDGETS = (math.inf, 1.0)
IDEALS = {
    "uncalibrated": "none",
    "pooled temperature": "pooled-temperature",
    "pooled BBQ": "pooled-bbq",
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedTemp": ("fedtemp", {}),
    "FedNewton": ("fednewton", {}),
    "FedOneShot": ("fedoneshot", {}),
    "FedBin": ("fedbin", {}),
    "FedBBQ": ("fedbbq", {"weighting": "none"}),
    "FedBBQ (weighted: all)": ("fedbbq", {"weighting": "all"}),
    "FedBBQ (weighted: changed)": ("fedbbq", {"weighting": "changed"}),
}
METRICS = ("accuracy", "ece", "classwise_ece", "nll")
HEADINGS = (
    *("method", "epsilon", "accuracy %", "ECE %", "cwECE %", "NLL"),
    *("delta", "noise std", "bytes up / down", "seconds"),
)


@dataclass(frozen=True)
class Row:
    """One line of the table: a method at a budget, over seeds."""

    name: str
    epsilon: float | None
    results: Sequence[SimulationResult]

    def cells(self) -> list[str]:
        """The line as people read it."""
        first = self.results[0]
        delta = first.privacy["delta"]
        return [
            self.name,
            "" if self.epsilon is None else f"{self.epsilon:g}",
            *(self._spread(metric) for metric in METRICS),
            "" if delta is None else f"{delta:g}",
            _noise(first),
            "{bytes_up_per_client:,} / {bytes_down_per_client:,}".format(**first.communication),
            f"{statistics.mean(r.seconds for r in self.results):.3f}",
        ]

    def _spread(self, metric: str) -> str:
        values = [r.after[metric] for r in self.results]
        mean = shown(metric, statistics.mean(values))
        std = shown(metric, statistics.stdev(values) if len(values) > 1 else 0.0)
        return mean if float(std) == 0 else f"{mean} ± {std}"

    def to_json(self) -> dict[str, Any]:
        """The line as numbers: one result for each seed."""
        return {"name": self.name, "results": [r.to_json() for r in self.results]}


def _noise(result: SimulationResult) -> str:
    if result.privacy["epsilon"] is None:
        return ""
    std = result.privacy["noise_std"]
    if std is None:
        return "(draw)"
    blocks = sorted({std} if isinstance(std, float) else set(std))
    return " / ".join(f"{s:.3g}" for s in blocks)


def rows() -> Iterator[Row]:
    """Run the demo, one row after the other."""
    data = datasets.load(DATA)
    for name, method in IDEALS.items():
        yield Row(name, None, [simulate(data, method=method)])
    for epsilon in BUDGETS:
        for name, (method, settings) in METHODS.items():
            results = [
                simulate(data, method=method, epsilon=epsilon, seed=seed, set=settings)
                for seed in range(SEEDS)
            ]
            yield Row(name, epsilon, results)


def as_table(table_rows: Sequence[Row]) -> Table:
    """The table for the terminal."""
    table = Table(
        title="ResNet-110 on CIFAR-10, 100 clients, Dirichlet(0.1), mean ± std over "
        f"{SEEDS} seeds, 10,000 test rows",
        title_justify="left",
        pad_edge=False,
        padding=(0, 0),
    )
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    last: float | None = None
    for row in table_rows:
        if row.epsilon != last:
            table.add_section()
        last = row.epsilon
        table.add_row(*row.cells())
    return table


def as_markdown(table_rows: Sequence[Row]) -> str:
    """The table for the README."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---" + "|---:" * (len(HEADINGS) - 1) + "|"]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in table_rows]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    out: Path = parser.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    done: list[Row] = []
    with progress_bar() as bar:
        task = bar.add_task("calibrating", total=len(IDEALS) + len(BUDGETS) * len(METHODS))
        for row in rows():
            done.append(row)
            bar.update(task, advance=1, description=row.name)
    write(done, out)
    console = Console(width=max(Console().width, 160))
    console.print(as_table(done))
    console.print(
        "Test metrics are exact and for the researcher's eyes; epsilon is user-level, zero-out, "
        "central noise after secure aggregation, seeded (a simulation).",
        soft_wrap=True,
    )
    console.print(
        f"{time.perf_counter() - start:.1f} s; table, numbers and figures are in {out}/",
        highlight=False,
    )


def write(done: Sequence[Row], out: Path) -> None:
    """Table as Markdown and CSV, numbers as JSON, reliability diagrams as PNG."""
    (out / "table.md").write_text(as_markdown(done), "utf-8")
    with (out / "table.csv").open("w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows([HEADINGS, *(row.cells() for row in done)])
    (out / "results.json").write_text(to_json([row.to_json() for row in done]), "utf-8")
    by_name = {(row.name, row.epsilon): row.results[0].reliability for row in done}

    def panel(name: str, epsilon: float | None) -> Reliability:
        return by_name[name, epsilon]["after"]

    title = "ResNet-110 on CIFAR-10, 100 clients, Dirichlet(0.1), seed 0"
    before = panel("uncalibrated", None)
    exact, private = ("FedTemp", "FedNewton", "FedBBQ"), ("FedTemp", "FedNewton", "FedOneShot")
    figures = {
        "reliability-before-after.png": {
            "before": before,
            "after: FedNewton, ε = 1": panel("FedNewton", 1.0),
        },
        "reliability-without-privacy.png": {
            "uncalibrated": before,
            **{f"{name}, ε = ∞": panel(name, math.inf) for name in exact},
        },
        "reliability-epsilon-1.png": {
            "uncalibrated": before,
            **{f"{name}, ε = 1": panel(name, 1.0) for name in private},
            "FedBBQ weighted all, ε = 1": panel("FedBBQ (weighted: all)", 1.0),
        },
    }
    for file, panels in figures.items():
        save_figure(reliability_figure(panels, title), out / file)


if __name__ == "__main__":
    main()
