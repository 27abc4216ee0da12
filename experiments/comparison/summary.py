"""A line of the table: what the runs of a cell come to, over its seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from fedcal.experiments.comparison.grid import Cell
from fedcal.experiments.runs import Row

Line = dict[str, Any]
"""An entry of `cells` in `compare.json`."""


def summarise(cell: Cell, rows: Sequence[Row]) -> Line:
    """Mean and spread over the seeds of a cell; std is that of a sample (n - 1), 0 for one run.

    Parameters
    ----------
    cell : resolved
    rows : one for each of its seeds
    """
    c, exact = cell.config, math.isinf(cell.config.epsilon)
    good = [row for row in rows if "error" not in row]
    first: Row = next(iter(good), {"privacy": {}, "communication": {}})
    baseline = cell.variant.baseline
    return {
        "data": c.data,
        "method": c.method,
        "label": cell.variant.label,
        "settings": dict(cell.variant.settings),
        "clients": c.clients if cell.variant.dealt else None,
        "partition": c.partition if cell.variant.dealt else None,
        "epsilon": None if exact else c.epsilon,
        "delta": None if exact else cell.delta,
        "unit": None if baseline else c.unit,
        "trust": None if baseline else c.trust,
        "sampling_rate": None if baseline else c.sampling_rate,
        "rounds": 0 if baseline else c.rounds,
        "seeds": [row["run"]["seed"] for row in good],
        "before": _metrics("before", good),
        "after": _metrics("after", good, values=True),
        "noise_std": first["privacy"].get("noise_std"),
        "mechanism": None if baseline else first["privacy"].get("mechanism"),
        "bytes_up": first["communication"].get("bytes_up_per_client"),
        "bytes_down": first["communication"].get("bytes_down_per_client"),
        "seconds": spread([s for row in good if (s := row["seconds"]) is not None]),
        "baseline": baseline,
        "failures": [
            {"seed": row["run"]["seed"], "error": row["error"]} for row in rows if "error" in row
        ],
    }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and std of a sample; None where there is nothing."""
    if not values:
        return {"mean": None, "std": None}
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
    }


def _metrics(part: str, rows: Sequence[Row], values: bool = False) -> dict[str, Any]:
    names = rows[0][part] if rows else ()
    found: dict[str, Any] = {}
    for name in names:
        over = [row[part][name] for row in rows]
        found[name] = spread(over) | ({"values": over} if values else {})
    return found
