"""What a grid gives: a row for each method, network and setting, over its seeds.

A row is what `NAME.json` has of it; metrics are fractions:

* `network` (short name of the data), `part`, `block`, `row`, `title`: where it stands, see `Part`;
* `method` as `compare` takes it, and `baseline`: it reads the rows themselves, and nothing but the
  data changes its result;
* `epsilon` (inf = without privacy, and for baselines), `rounds`, `sampling_rate`, `clients`,
  `partition` of its runs; None for baselines;
* `classwise_ece` and `accuracy` on the test rows, one value for each seed; `accuracy_before`, the
  mean without a calibrator over the same seeds;
* `failures`: messages of runs that failed; their seeds have no values;
* what `completed` adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from experiments.studies.spec import Experiment, Part, Printed, Record, Rows
from fedcal.results.comparison import Line

BASE = "Base"
"""Title of the model as it is; every grid has it, and its accuracy is the one to keep."""

METRICS = {"classwise_ece": "classwise ECE", "accuracy": "accuracy"}
"""What is kept of each run, and its words."""

MEAN, STD = "classwise_ece_mean", "classwise_ece_std"

SETTINGS = ("epsilon", "rounds", "sampling_rate", "clients", "partition")

SHIPPED = ("network", "part", "title", "baseline", *SETTINGS, *METRICS)
"""What is kept of a row in expected results; the rest follows."""

LOSS = 0.01
"""A method that loses more accuracy than this (absolute) is marked, as in the paper."""


def completed(row: Record) -> Record:
    """Add the mean and spread of a row's values, and whether it loses more than 1 % accuracy."""
    if not row["classwise_ece"]:
        return row
    before, (ece, accuracy) = row["accuracy_before"], (sum(row[k]) / len(row[k]) for k in METRICS)
    loss = before - accuracy
    return row | {
        MEAN: ece,
        "classwise_ece_std": spread(row["classwise_ece"]),
        "accuracy_mean": before - loss,
        "loses_accuracy": loss > LOSS,
    }


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample; 0 for one value."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def place_of(row: Record) -> str:
    """Return the line of the table that a row belongs to."""
    return ", ".join(filter(None, (row["network"], row["row"])))


def row_of(line: Line, part: Part, names: Mapping[str, str]) -> Record:
    """Convert a line of a comparison to a row.

    Parameters
    ----------
    names
        the line's data -> short name
    """
    baseline, after = line["baseline"], line["after"] if line["seeds"] else {}
    found = {
        "network": names[line["data"]],
        **_place(part, part.title_of(line["method"], line["settings"])),
        "baseline": baseline,
        **{k: None if baseline and k == "rounds" else line[k] for k in SETTINGS},
        **{metric: list(after[metric]["values"]) if after else [] for metric in METRICS},
        "accuracy_before": line["before"]["accuracy"]["mean"] if after else 0.0,
        "failures": [f["error"] for f in line["failures"]],
    }
    return completed(found)


def _place(part: Part, title: str) -> Record:
    place = {"part": part.name, "block": part.block, "row": part.row, "title": title}
    return place | {"method": part.methods[title]}


def rows_of(experiment: Experiment, items: Iterable[Record]) -> Rows:
    """Rows again from what ships of them, the values of `SHIPPED`."""
    items = list(items)
    parts = {part.name: part for part in experiment.parts}
    base = {i["network"]: i["accuracy"] for i in items if i["title"] == BASE}
    return [
        completed(
            {"network": item["network"]}
            | _place(parts[item["part"]], item["title"])
            | item
            | {"epsilon": float(item["epsilon"])}
            | {"accuracy_before": sum(base[item["network"]]) / len(base[item["network"]])}
            | {"failures": []}
        )
        for item in items
    ]


def whole(rows: Rows) -> Rows:
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
