"""Comparisons that README and docs quote: `options` of a section are those of `fedcal compare`.

A row is a line of the comparison: its facts, mean and standard deviation over seeds (`METRIC`,
`METRIC std`) of some metrics and of the seconds of a run, and of metrics the value of the first
seed (`METRIC first`). They have no claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.studies.spec import Record, Rows, Study
from fedcal.core.options import strict
from fedcal.results.comparison import Line
from fedcal.run.comparison import compare
from fedcal.strategies.server.outcome import Progress

METRICS = ("accuracy", "ece", "classwise_ece", "nll")
FACTS = (
    *("data", "method", "label", "settings", "clients", "partition", "epsilon", "delta", "unit"),
    *("trust", "sampling_rate", "rounds", "seeds", "noise_std", "mechanism", "bytes_up"),
    *("bytes_down", "baseline", "failures"),
)


def row_of(line: Line) -> Record:
    """Convert a line of a comparison to a row."""
    row = {k: line[k] for k in FACTS} | {"epsilon": strict(line["epsilon"])}
    row |= {"seconds": line["seconds"]["mean"], "seconds std": line["seconds"]["std"]}
    for name in METRICS:
        of = line["after"][name]
        row |= {name: of["mean"], f"{name} std": of["std"], f"{name} first": of["values"][0]}
    return row


def line_of(row: Record) -> Line:
    """Return the line of a comparison that a row was made of, with what rows keep."""
    spread = {k: {"mean": row[k], "std": row[f"{k} std"]} for k in (*METRICS, "seconds")}
    line: Line = {k: row[k] for k in FACTS} | {"epsilon": float(row["epsilon"])}
    return line | {"seconds": spread.pop("seconds"), "after": spread}


def rows(
    *, options: Mapping[str, Any], jobs: int | None = None, progress: Progress | None = None
) -> Rows:
    """Run the comparison."""
    return [row_of(line) for line in compare(jobs=jobs, progress=progress, **options).cells]


comparison = Study(rows, lambda rows: ())
