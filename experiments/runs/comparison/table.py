"""The table of a comparison: its lines, the best of them, as text, Markdown and CSV."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.experiments.report import families, tables
from fedcal.experiments.runs.comparison.grid import Cell
from fedcal.experiments.runs.sweep import Row
from fedcal.strategies.settings import settings_of

Line = dict[str, Any]
"""An entry of `cells` in `compare.json`."""

_CALIBRATE = families.FAMILIES["calibrate"]

_SETTING = ("data", "partition", "clients", "unit", "trust", "alpha")
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
    asked: Line = {}
    if (
        families.family_of([c.method]).covers
        and (alpha := settings_of(c.method).get("alpha")) is not None
    ):
        asked["alpha"] = c.set.get("alpha", alpha.default)
    return {
        "data": c.data,
        "method": c.method,
        "label": cell.variant.label,
        "settings": dict(cell.variant.settings),
        **asked,
        "clients": c.clients if cell.variant.dealt else None,
        "partition": c.partition if cell.variant.dealt else None,
        "epsilon": c.epsilon,
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
    names = dict.fromkeys(name for row in rows for name in row[part])
    metrics: dict[str, Any] = {}
    for name in names:
        over = [row[part][name] for row in rows if name in row[part]]
        metrics[name] = spread(over) | ({"values": over} if values else {})
    return metrics


def headline(lines: Sequence[Line]) -> str:
    """Name the method with the smallest classwise ECE, or sets, over seeds at each epsilon.

    Private methods are ranked where there are any, others only where there are none. Lines with
    failed runs are not ranked: their means are over other seeds.

    Parameters
    ----------
    lines
        `cells` of `compare.json`
    """
    family = families.family_in(lines)
    fitted = [c for c in lines if not c["baseline"]]
    if not fitted:
        return "Nothing but baselines was run."
    ranked = [c for c in fitted if c["seeds"] and not c["failures"]]
    if ranked and not family.best:
        return f"{family.what}."
    ranked = [c for c in ranked if math.isfinite(c["epsilon"])] or ranked
    varied = [k for k in _SETTING if len({c.get(k) for c in ranked}) > 1]
    settings: dict[tuple[Any, ...], list[Line]] = {}
    for c in sorted(ranked, key=lambda c: float(c["epsilon"])):
        settings.setdefault((c["epsilon"], *(c[k] for k in varied)), []).append(c)
    if not settings:
        return "No method was run to its end with every seed."
    none = ""
    if family.covers:
        every = len(settings)
        settings = {
            key: covering for key, some in settings.items() if (covering := _covering(some))
        }
        if not settings:
            return "No line covers as many test rows as its sets say."
        if every > len(settings):
            none = f" In {every - len(settings)} of {every} settings no line covers as many."
    if len(settings) > _MOST:
        return _counted(family, list(settings.values())) + none
    plain = {c["data"]: c for c in lines if c["method"] == "none" and c["seeds"]}
    parts = []
    for (epsilon, *facts), rivals in settings.items():
        where = "without privacy" if math.isinf(epsilon) else f"at epsilon = {epsilon:g}"
        names = [f"{k} {v}" for k, v in zip(varied, facts, strict=True)]
        parts.append(
            ", ".join([where, *names]) + " " + _won(family, rivals, plain.get(rivals[0]["data"]))
        )
    return f"{family.what}: {'; '.join(parts)}.{none}"


def harmed(lines: Sequence[Line]) -> str:
    """Return a line naming the methods with a worse classwise ECE than the model itself.

    Worse means by a tenth and by more than the noise; "" if there are none.
    """
    worse = []
    for line in lines:
        if line["baseline"] or _CALIBRATE.best not in line["before"]:
            continue
        before, after = (line[part][_CALIBRATE.best] for part in ("before", "after"))
        by = after["mean"] - before["mean"]
        if by > max(0.1 * before["mean"], before["std"], after["std"]):
            epsilon = line["epsilon"]
            budget = "no privacy" if math.isinf(epsilon) else f"epsilon {epsilon:g}"
            worse.append(f"{line['label']} with {budget}")
    if not worse:
        return ""
    names = ", ".join(worse[:5]) + (f" and {len(worse) - 5} more" if len(worse) > 5 else "")
    return f"Worse than the model itself, in classwise ECE: {names}."


def _covering(lines: Sequence[Line]) -> list[Line]:
    """Return the lines whose sets reach their stated coverage, within the noise."""
    return [
        c
        for c in lines
        if c["after"]["coverage_high"]["mean"] + c["after"]["coverage"]["std"]
        >= 1 - c.get("alpha", 1)
    ]


def _won(family: families.Family, rivals: Sequence[Line], plain: Line | None) -> str:
    """Return the winner of a setting, the next one's distance, and the model without either."""
    best, *others = sorted(rivals, key=family.mean)
    text = f"{_name(best, rivals)} ({_value(family, best)})"
    if others and _within_noise(family, best, others[0]):
        text += f", within the noise (std over seeds) of {_name(others[0], rivals)}"
        text += f" ({_value(family, others[0])})"
    elif others and len(best["seeds"]) == 1:
        text += " (one seed: the noise is unknown)"
    if plain is not None:
        worse = "" if family.mean(best) < family.mean(plain) else "no better than "
        text += f", {worse}uncalibrated {_value(family, plain)}"
    return text


def _counted(family: families.Family, settings: Sequence[Sequence[Line]]) -> str:
    ranked = [sorted(rivals, key=family.mean) for rivals in settings]
    won = Counter(rivals[0]["label"] for rivals in ranked)
    text = ", ".join(f"{label} in {times}" for label, times in won.most_common())
    tied = sum(len(rivals) > 1 and _within_noise(family, *rivals[:2]) for rivals in ranked)
    noise = f"within the noise (std over seeds) of the next in {tied or 'none'} of them"
    if all(len(c["seeds"]) == 1 for rivals in settings for c in rivals):
        noise = "one seed: the noise is unknown"
    return f"{family.what}, of {len(settings)} settings: {text} ({noise})."


def _within_noise(family: families.Family, best: Line, rival: Line) -> bool:
    noise = max(float(c["after"][family.best]["std"]) for c in (best, rival))
    return family.mean(rival) - family.mean(best) <= noise


def _name(line: Line, rivals: Sequence[Line]) -> str:
    """Return the line's label, with what distinguishes it from lines of the same label."""
    same = [c for c in rivals if c["label"] == line["label"]]
    facts = [k for k in ("mechanism", "sampling_rate", "rounds") if len({c[k] for c in same}) > 1]
    return ", ".join([line["label"], *(f"{k.replace('_', ' ')} {line[k]}" for k in facts)])


def _value(family: families.Family, line: Line) -> str:
    percent = family.columns[family.best].endswith("%")
    return f"{100 * family.mean(line):.3g} %" if percent else f"{family.mean(line):.3g}"


def _short(data: str) -> str:
    return Path(data).name


_TITLE: dict[str, Callable[[Any], str]] = {
    "data": _short,
    "clients": "{:,} clients".format,
    "partition": str,
    "alpha": "alpha {:g}".format,
    "sampling_rate": "sampling rate {:g}".format,
}
"""Facts of all lines in a title, in words."""

_FACTS = (
    "alpha",
    *("data", "clients", "partition", "sampling_rate", "rounds", "unit", "trust", "mechanism"),
)
_FOLLOWING = ("trust", "mechanism", "rounds")
"""Facts that follow from method and budget unless they are given."""
_TELLING = (
    *("data", "label", "clients", "partition", "sampling_rate", "unit", "epsilon", "delta"),
)
_KEPT = (
    *("data", "method", "label", "settings", "alpha", "clients", "partition", "rounds"),
    *("sampling_rate", "epsilon", "delta", "unit", "trust", "mechanism", "noise_std"),
    *("bytes_up", "bytes_down", "baseline"),
)
_WORDS = ("method", "data", "partition", "unit", "trust", "mechanism")
_PARTS = (("before", "before", "mean"), ("mean", "after", "mean"), ("std", "after", "std"))


def as_table(lines: Sequence[Line]) -> pages.Table:
    """Return the table for the terminal (`show.tables.print_table`) and for Markdown.

    A fact that is the same in all lines (the data, the partition, ...) goes into the title
    instead of a column; trust, mechanism and rounds, which follow from method and budget unless
    they are given, are shown only where they tell two lines apart.
    """
    metrics = families.columns_of(lines)
    facts = {k: {line.get(k): None for line in lines if line.get(k) is not None} for k in _FACTS}
    varied = [k for k, values in facts.items() if len(values) > 1]
    telling = _telling(lines, varied)
    varied = [k for k in varied if k not in _FOLLOWING or k in telling]
    columns = ("method", *(k.replace("_", " ") for k in varied), "epsilon", *metrics.values())
    columns += ("delta", "noise std", "bytes up / down", "seconds")
    title = [
        say(next(iter(facts[k])))
        for k, say in _TITLE.items()
        if len(facts[k]) == 1 and (k, *facts[k]) != ("sampling_rate", 1.0)
    ]
    runs = max(len(line["seeds"]) + len(line["failures"]) for line in lines)
    title.append(f"mean ± std over {runs} seeds" if runs > 1 else "one seed")
    words = {k for k, heading in enumerate(columns) if heading in _WORDS}
    parting = ("baseline", "epsilon", *(k for k in varied if k not in ("rounds", "mechanism")))
    parts = [[line.get(k) for k in parting] for line in lines]
    begin = {k: "" for k, (one, following) in enumerate(pairwise(parts), 1) if one != following}
    rows = [_texts(line, varied, metrics) for line in lines]
    return pages.Table(", ".join(title), columns, rows, left=tuple(words), sections=begin)


def _telling(lines: Sequence[Line], varied: Sequence[str]) -> list[str]:
    """Return those of `_FOLLOWING` that distinguish lines which all before them do not."""
    keys, telling = list(_TELLING), list[str]()
    for fact in _FOLLOWING:
        # a delta of 0 is a consequence of the mechanism, and no name for it
        known = [k for k in keys if (fact, k) != ("mechanism", "delta")]
        without, with_fact = (
            len({tuple(line.get(k) for k in some) for line in lines})
            for some in (known, [*known, fact])
        )
        if fact in varied and with_fact > without:
            keys.append(fact)
            telling.append(fact)
    return telling


def _texts(line: Line, varied: Iterable[str], metrics: Iterable[str]) -> list[str]:
    """Return a line as text for people."""
    failed, runs = len(line["failures"]), len(line["seeds"]) + len(line["failures"])
    label = line["label"] + (f" [{failed} of {runs} failed]" if failed else "")
    up, down, seconds = line["bytes_up"], line["bytes_down"], line["seconds"]["mean"]
    return [
        label,
        *(_fact(k, line.get(k)) for k in varied),
        "" if line["baseline"] else f"{line['epsilon']:g}",
        *(_spread(metric, line["after"].get(metric), len(line["seeds"])) for metric in metrics),
        "" if line["delta"] is None else f"{line['delta']:g}",
        _noise(line),
        "" if up is None else f"{up:,} / {down:,}",
        "" if seconds is None else f"{seconds:.3f}",
    ]


def as_markdown(lines: Sequence[Line]) -> str:
    """Return the table for a README, without the title."""
    return tables.markdown(replace(as_table(lines), title="", left=(0,)))


def as_rows(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the CSV's content, by column."""
    metrics = list(dict.fromkeys(name for line in lines for name in line["after"]))
    return [
        {key: line[key] for key in _KEPT if key in line}
        | {"runs": len(line["seeds"]), "failed": len(line["failures"])}
        | {
            f"{metric}_{name}": line[part].get(metric, {}).get(of)
            for metric in metrics
            for name, part, of in _PARTS
        }
        | {"seconds_mean": line["seconds"]["mean"], "seconds_std": line["seconds"]["std"]}
        for line in lines
    ]


def _fact(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "data":
        return _short(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spread(metric: str, over: Mapping[str, Any] | None, runs: int) -> str:
    if over is None or over["mean"] is None:
        return ""
    mean, std = families.shown(metric, over["mean"]), families.shown(metric, over["std"])
    some = len(over.get("values", range(runs)))  # what ships of a comparison has means alone
    note = "" if some == runs else f" [{some} of {runs}]"  # noise drowned the others
    return (mean if float(std) == 0 else f"{mean} ± {std}") + note


def _noise(line: Line) -> str:
    """Return the std of the released sum, one number for each kind of block."""
    if math.isinf(line["epsilon"]) or not line["seeds"]:
        return ""
    std = line["noise_std"]
    if std is None:
        return "(draw)"
    blocks = sorted({std} if isinstance(std, float) else set(std))
    return " / ".join(f"{s:,.0f}" if s >= 1000 else f"{s:.3g}" for s in blocks)
