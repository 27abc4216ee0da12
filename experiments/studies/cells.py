"""Rows of a grid: one for each method, network and setting, over its seeds.

A row is what ships of it and what `--check` compares; metrics are fractions:

* `network` (short name of the data), `part`, `title`: see `Part`; `baseline`: the method reads the
  rows themselves, and nothing but the data changes its result;
* `epsilon` (inf = without privacy, and for baselines), `rounds`, `sampling_rate`, `clients`,
  `partition` of its runs; None for baselines;
* `classwise_ece` and `accuracy` on the test rows, one value for each seed;
* `failures`: messages of runs that failed; their seeds have no values.

`completed` adds what follows from these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from experiments.studies.spec import Experiment, Part, Printed, Record, Rows
from fedcal.results.comparison import Line

BASE = "Base"
"""Title of the model as it is; every grid has it, and its accuracy is the one to keep."""

METRICS = {"classwise_ece": 0.01, "accuracy": 0.001}
"""Metrics that are kept of each run -> share of the value that `--check` tolerates."""

MEAN, STD = "classwise_ece_mean", "classwise_ece_std"

SETTINGS = ("epsilon", "rounds", "sampling_rate", "clients", "partition")

LOSS = 0.01
"""A method that loses more accuracy than this (absolute) is marked, as in the paper."""


def row_of(line: Line, part: Part, network: str) -> Record:
    """Convert a line of a comparison to a row."""
    baseline, after = line["baseline"], line["after"] if line["seeds"] else {}
    return {
        "network": network,
        "part": part.name,
        "title": part.title_of(line["method"], line["settings"]),
        "baseline": baseline,
        **{k: None if baseline and k == "rounds" else line[k] for k in SETTINGS},
        **{metric: list(after[metric]["values"]) if after else [] for metric in METRICS},
        "failures": [f["error"] for f in line["failures"]],
    }


def completed(experiment: Experiment, rows: Rows) -> Rows:
    """Add each row's place in the tables, means, spread, and whether it loses accuracy."""
    parts = {part.name: part for part in experiment.parts}
    base = {r["network"]: fmean(r["accuracy"]) for r in rows if r["title"] == BASE}
    found = []
    for row in rows:
        part, before = parts[row["part"]], base.get(row["network"], math.nan)
        place = {"block": part.block, "row": part.row, "method": part.methods[row["title"]]}
        found.append(row | place | {"accuracy_before": before})
        if row["classwise_ece"]:
            accuracy = fmean(row["accuracy"])
            found[-1] |= {
                MEAN: fmean(row["classwise_ece"]),
                STD: spread(row["classwise_ece"]),
                "accuracy_mean": accuracy,
                "loses_accuracy": before - accuracy > LOSS,
            }
    return found


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample; 0 for one value."""
    return stdev(values) if len(values) > 1 else 0.0


def place_of(row: Record) -> str:
    """Return the line of the table that a row belongs to."""
    return ", ".join(filter(None, (row["network"], row["row"])))


def without_failures(rows: Rows) -> Rows:
    """Return the rows without a failed run; means of the others would be over other seeds."""
    return [row for row in rows if row["classwise_ece"] and not row["failures"]]


def printed_rows(table: Printed) -> Rows:
    """Convert a table of the paper to rows, to test its own numbers against its claims.

    Means only, and no accuracy: the paper prints marks instead.
    """
    return [
        {
            **{"network": name, "part": "printed", "row": "", "title": title, "rounds": None},
            "epsilon": math.inf if title == BASE else table.epsilon,
            MEAN: value[0] / 100,
            **{"accuracy_before": math.nan, "accuracy_mean": math.nan, "loses_accuracy": False},
        }
        for name, values in table.rows.items()
        for title, value in zip(table.columns, values, strict=True)
    ]
