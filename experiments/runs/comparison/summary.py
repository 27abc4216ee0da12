"""A line of the table, what the runs of a cell come to over its seeds; and the best of them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedcal.experiments.runs.comparison.grid import Cell
from fedcal.experiments.runs.sweep import Row

Line = dict[str, Any]
"""An entry of `cells` in `compare.json`."""

METRIC = "classwise_ece"
_WHAT = "Smallest mean classwise ECE on the test rows"

_SETTING = ("data", "partition", "clients", "unit", "trust")
"""Lines that differ in these are not ranked: other data, or another promise."""

_MOST = 3
"""Settings that are named one by one; of more, the winners are counted."""


def summarise(cell: Cell, rows: Sequence[Row]) -> Line:
    """Mean and spread over the seeds of a cell; std is that of a sample (n - 1), 0 for one run.

    Parameters
    ----------
    cell
        resolved
    rows
        one for each of its seeds
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


def headline(lines: Sequence[Line]) -> str:
    """Name the method with the smallest classwise ECE, the mean over seeds, at each epsilon.

    Private methods are ranked where there are any, others only where there are none. Lines with
    failed runs are not ranked: their means are over other seeds.

    Parameters
    ----------
    lines
        `cells` of `compare.json`
    """
    fitted = [c for c in lines if not c["baseline"]]
    if not fitted:
        return "Nothing but baselines was run."
    ranked = [c for c in fitted if c["seeds"] and not c["failures"]]
    ranked = [c for c in ranked if c["epsilon"] is not None] or ranked
    varied = [k for k in _SETTING if len({c[k] for c in ranked}) > 1]
    settings: dict[tuple[Any, ...], list[Line]] = {}
    for c in sorted(ranked, key=lambda c: float(c["epsilon"] or 0.0)):
        settings.setdefault((c["epsilon"], *(c[k] for k in varied)), []).append(c)
    if not settings:
        return "No method was run to its end with every seed."
    if len(settings) > _MOST:
        return _counted(list(settings.values()))
    plain = {c["data"]: c for c in lines if c["method"] == "none" and c["seeds"]}
    parts = []
    for (epsilon, *facts), rivals in settings.items():
        where = "without privacy" if epsilon is None else f"at epsilon = {epsilon:g}"
        names = [f"{k} {v}" for k, v in zip(varied, facts, strict=True)]
        parts.append(", ".join([where, *names]) + " " + _won(rivals, plain.get(rivals[0]["data"])))
    return f"{_WHAT}: {'; '.join(parts)}."


def harmed(lines: Sequence[Line]) -> str:
    """Name the lines with a larger classwise ECE than the model itself, by a tenth and by more
    than the noise; "" if there are none."""
    worse = []
    for line in lines:
        if line["baseline"] or not line["seeds"]:
            continue
        before, after = line["before"][METRIC], line["after"][METRIC]
        by = after["mean"] - before["mean"]
        if by > max(0.1 * before["mean"], before["std"], after["std"]):
            budget = "no privacy" if line["epsilon"] is None else f"epsilon {line['epsilon']:g}"
            worse.append(f"{line['label']} with {budget}")
    if not worse:
        return ""
    told = ", ".join(worse[:5]) + (f" and {len(worse) - 5} more" if len(worse) > 5 else "")
    return f"Worse than the model itself, in classwise ECE: {told}."


def _won(rivals: Sequence[Line], plain: Line | None) -> str:
    """The winner of a setting, how close the next one is, and what it is without a calibrator."""
    best, *others = sorted(rivals, key=_mean)
    text = f"{_name(best, rivals)} ({_percent(best)})"
    if others and _within_noise(best, others[0]):
        text += f", within the noise (std over seeds) of {_name(others[0], rivals)}"
        text += f" ({_percent(others[0])})"
    elif others and len(best["seeds"]) == 1:
        text += " (one seed: the noise is unknown)"
    if plain is not None:
        worse = "" if _mean(best) < _mean(plain) else "no better than "
        text += f", {worse}uncalibrated {_percent(plain)}"
    return text


def _counted(settings: Sequence[Sequence[Line]]) -> str:
    won = Counter(min(rivals, key=_mean)["label"] for rivals in settings)
    text = ", ".join(f"{label} in {times}" for label, times in won.most_common())
    tied = sum(
        len(rivals) > 1 and _within_noise(*sorted(rivals, key=_mean)[:2]) for rivals in settings
    )
    noise = f"within the noise (std over seeds) of the next in {tied or 'none'} of them"
    if all(len(c["seeds"]) == 1 for rivals in settings for c in rivals):
        noise = "one seed: the noise is unknown"
    return f"{_WHAT}, of {len(settings)} settings: {text} ({noise})."


def _within_noise(best: Line, other: Line) -> bool:
    noise = max(float(c["after"][METRIC]["std"]) for c in (best, other))
    return _mean(other) - _mean(best) <= noise


def _name(line: Line, rivals: Sequence[Line]) -> str:
    """Its label, with what tells it from lines of the same label."""
    same = [c for c in rivals if c["label"] == line["label"]]
    facts = [k for k in ("mechanism", "sampling_rate", "rounds") if len({c[k] for c in same}) > 1]
    return ", ".join([line["label"], *(f"{k.replace('_', ' ')} {line[k]}" for k in facts)])


def _mean(line: Line) -> float:
    return float(line["after"][METRIC]["mean"])


def _percent(line: Line) -> str:
    return f"{100 * _mean(line):.3g} %"
