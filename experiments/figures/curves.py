"""Curves: test metrics by round, and a comparison's quality against epsilon and against bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from fedcal.experiments.figures.panel import (
    STYLES,
    Axis,
    Level,
    Line,
    Mark,
    Panel,
    Sheet,
    Whiskers,
    linear_axis,
    log_axis,
    spread_of,
)

BY_ROUND = ("ece", "classwise_ece", "nll", "accuracy")
NAMES = {
    "accuracy": "accuracy, %",
    "ece": "ECE, %",
    "classwise_ece": "classwise ECE, %",
    "nll": "NLL, nats",
    "temperature": "temperature",
}
METHOD_STYLES = [name for name in STYLES if name[0] == "m"]
BASELINE_STYLES = [name for name in STYLES if name[0] == "b" and name[1:].isdigit()]
SHAPES = [name for name in STYLES if name.startswith("shape")]
MOST_PANELS = 24
_ASIDE = 0.007  # of the axis: so far beside each other lie methods at one budget
_LOG_FROM = 12.0  # max / min from which a metric gets a logarithmic axis


def scaled(metric: str, value: float) -> float:
    """Fractions of rows in per cent, as `NAMES` says."""
    return 100 * value if NAMES[metric].endswith("%") else value


def rounds_sheet(
    before: Mapping[str, float], rounds: Sequence[Mapping[str, Any]], title: str
) -> Sheet | None:
    """Test metrics after each release, from "before" as round 0; None without any release.

    Parameters
    ----------
    before : metrics without a calibrator
    rounds : records of `rounds.jsonl`; those without `test` are left out
    """
    judged = [r for r in rounds if "test" in r]
    if not judged:
        return None
    at = [0, *(int(r["round"]) for r in judged)]
    panels = []
    for metric in BY_ROUND:
        y = [scaled(metric, v) for v in (before[metric], *(r["test"][metric] for r in judged))]
        panels.append(_round_panel(metric, at, y, first=y[0]))
    if all("temperature" in r for r in judged):
        y = [1.0, *(float(r["temperature"]) for r in judged)]
        panels.append(_round_panel("temperature", at, y, first=1.0))
    legend = (("reference", "before"), ("after", "after each round"))
    return Sheet(title, len(panels), tuple(panels), legend)


def _round_panel(metric: str, at: Sequence[int], y: Sequence[float], first: float) -> Panel:
    step = max(1, -(-at[-1] // 6))
    ticks = tuple((float(t), str(t)) for t in range(0, at[-1] + 1, step))
    said = "; ".join(f"round {t}: {v:.4g}" for t, v in zip(at, y, strict=True))
    return Panel(
        title=NAMES[metric].partition(",")[0],
        x=Axis("round", 0.0, float(at[-1]), ticks),
        y=linear_axis(NAMES[metric].rpartition(", ")[2], y),
        marks=(Level("reference", first), Line("after", [float(t) for t in at], y)),
        said=f"{NAMES[metric]} by round. {said}.",
        aspect=0.75,
    )


# -- a comparison --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facet:
    """Cells of a comparison that differ in method and epsilon alone, as far as they can.

    title : the values by which this group differs from the others
    """

    title: str
    cells: tuple[Mapping[str, Any], ...]
    baselines: tuple[Mapping[str, Any], ...]


_ALIKE = ("data", "clients", "partition", "sampling_rate", "unit")
_IF_VARIED = ("delta", "trust", "mechanism", "rounds")
"""These follow from method and epsilon unless they are given: told only where several were."""


def differing(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Which public facts, other than method and epsilon, tell cells apart (baselines aside)."""
    cells = [c for c in cells if not c["baseline"]]
    found = [k for k in _ALIKE if len({c.get(k) for c in cells}) > 1]
    return found + [k for k in _IF_VARIED if _choices(cells, k)]


def _choices(cells: Iterable[Mapping[str, Any]], key: str) -> dict[tuple[Any, ...], list[Any]]:
    """Method, epsilon and what `_without` takes -> values of `key`, where there are several."""
    found: dict[tuple[Any, ...], dict[Any, None]] = {}
    for c in cells:
        found.setdefault(_without(c, key), {})[c.get(key)] = None
    return {k: list(values) for k, values in found.items() if len(values) > 1}


def _without(cell: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    also = ("trust",) if key == "mechanism" else ()  # it follows from the trust model, too
    return (cell["label"], cell["epsilon"], *(cell.get(k) for k in (*_ALIKE, *also)))


def told(cell: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Those facts of a cell in words; what it has not (delta without privacy) is left out."""
    return ", ".join(_named(k, cell[k]) for k in keys if cell.get(k) is not None)


def facets(cells: Iterable[Mapping[str, Any]], *, shared: bool = True) -> list[Facet]:
    """Group the cells; a title names only what differs between groups.

    Parameters
    ----------
    shared : a cell that has no such choice (a run without privacy has no delta) is in the groups
        of all choices, where a curve needs it; False = each cell is in one group, by its own facts
    """
    cells = list(cells)
    fitted = [c for c in cells if not c["baseline"]]
    keys = differing(fitted)
    extra = [k for k in keys if k in _IF_VARIED]
    choices = {k: _choices(fitted, k) for k in extra}
    chosen = {k: {v for some in choices[k].values() for v in some} for k in extra}

    def free(c: Mapping[str, Any], key: str) -> bool:
        choice = key not in extra or c.get(key) in chosen[key] or _without(c, key) in choices[key]
        return shared and not choice

    def place(c: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(c.get(k) for k in (*_ALIKE, *extra))

    def fits(c: Mapping[str, Any], values: tuple[Any, ...]) -> bool:
        pairs = zip((*_ALIKE, *extra), values, strict=True)
        return all(c.get(k) == value or free(c, k) for k, value in pairs)

    places = dict.fromkeys(place(c) for c in fitted if not any(free(c, k) for k in extra))
    alone = [place(c) for c in fitted if not any(fits(c, p) for p in places)]
    found = []
    for values in (*places, *dict.fromkeys(alone)):
        facts = dict(zip((*_ALIKE, *extra), values, strict=True))
        members = tuple(c for c in fitted if fits(c, values))
        base = {c["label"]: c for c in cells if c["baseline"] and c["data"] == facts["data"]}
        title = told(facts, keys) or str(facts["partition"])
        found.append(Facet(title, members, tuple(base.values())))
    return found or [Facet("", (), tuple(c for c in cells if c["baseline"]))]


def _named(key: str, value: Any) -> str:
    if key == "clients":
        return f"{value:,} clients"
    if key == "sampling_rate":
        return f"sampling rate {value:g}"
    if key == "delta":
        return f"δ = {value:g}"
    if key == "rounds":
        return f"{value:,} round{'s' if value != 1 else ''}"
    if key in ("unit", "trust"):
        return f"{key} {value}"
    return str(value)


def series_of(cells: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Label -> style, the same in every figure of one comparison."""
    labels = list(dict.fromkeys((c["label"], bool(c["baseline"])) for c in cells))
    looks = {True: iter(BASELINE_STYLES * len(labels)), False: iter(METHOD_STYLES * len(labels))}
    return {label: next(looks[base]) for label, base in labels}


def quality_axis(metric: str, means: Sequence[float], ends: Sequence[float] = ()) -> Axis:
    """A metric's axis, logarithmic where means are far apart.

    Parameters
    ----------
    means, ends : as they are shown; the ends of whiskers, if there is to be room for them
    """
    values = [*means, *(v for v in ends if metric == "accuracy" or v > 0)]
    if metric != "accuracy" and spread_of(means) > _LOG_FROM and min(means) > 0:
        return log_axis(NAMES[metric], [v for v in values if v >= 0.6 * min(means)])
    return linear_axis(NAMES[metric], values)


def _quality_axes(metrics: Iterable[str], cells: Sequence[Mapping[str, Any]]) -> dict[str, Axis]:
    axes = {}
    for metric in metrics:
        spreads = [c["after"][metric] for c in cells]
        means = [scaled(metric, s["mean"]) for s in spreads]
        ends = [scaled(metric, s["mean"] + k * s["std"]) for s in spreads for k in (-1, 1)]
        axes[metric] = quality_axis(metric, means, ends)
    return axes


def spaced_axis(
    label: str, values: Sequence[float], end: str = "∞"
) -> tuple[Axis, dict[float, float]]:
    """A logarithmic axis of a few values, with a tick at each that has room; where each lies.

    Parameters
    ----------
    end : what infinity, at the right, is called
    """
    finite = sorted({v for v in values if math.isfinite(v)})
    places = {v: math.log10(v) for v in finite}
    low, high = (places[finite[0]], places[finite[-1]]) if finite else (0.0, 0.0)
    room = max(0.35 * (high - low) / max(len(finite) - 1, 1), 0.3)
    if len(finite) < len(set(values)):
        high = places[math.inf] = high + max(room, 0.45)
    ticks: list[tuple[float, str]] = []
    for value, place in reversed(places.items()):  # the right end always has its tick
        if not ticks or ticks[-1][0] - place > 0.09 * (high - low + 2 * room):
            ticks.append((place, end if math.isinf(value) else f"{value:g}"))
    return Axis(label, low - room, high + room, tuple(reversed(ticks))), places


def budget(cell: Mapping[str, Any]) -> float:
    """Epsilon of a cell; infinity without privacy."""
    return math.inf if cell["epsilon"] is None else float(cell["epsilon"])


class Means(NamedTuple):
    """A curve of means over seeds, with their standard deviations."""

    name: str
    style: str
    x: Sequence[float]
    mean: Sequence[float]
    std: Sequence[float]


def with_spread(curves: Sequence[Means], axis: Axis) -> tuple[list[Mark], str]:
    """Curves with whiskers of one standard deviation, a little beside each other; and in words."""
    marks: list[Mark] = []
    for k, curve in enumerate(curves):
        aside = _ASIDE * (axis.high - axis.low) * (k - (len(curves) - 1) / 2)
        x = [place + aside for place in curve.x]
        pairs = list(zip(curve.mean, curve.std, strict=True))
        low, high = [max(m - s, 0.0) for m, s in pairs], [m + s for m, s in pairs]
        marks += [Whiskers(curve.style, x, low, high), Line(curve.style, x, curve.mean)]
    words = (f"{c.name}: {', '.join(f'{m:.4g}' for m in c.mean)}" for c in curves)
    return marks, "; ".join(words)


def _panel(metric: str, note: str, x: Axis, y: Axis, marks: Sequence[Mark], words: str) -> Panel:
    """Quality against something."""
    return Panel(
        title=NAMES[metric].partition(",")[0],
        note=note,
        x=x,
        y=y,
        marks=tuple(marks),
        said=f"{NAMES[metric]} against {x.label}, {note}. {words}.",
        aspect=0.8,
    )


def epsilon_sheet(
    cells: Sequence[Mapping[str, Any]],
    metrics: Sequence[str],
    title: str,
    looks: Mapping[str, str] | None = None,
) -> Sheet:
    """Quality against budget: a row for each group of cells, a column for each metric.

    Parameters
    ----------
    looks : label -> style (`series_of` the cells)
    """
    looks, panels = looks or series_of(cells), []
    axis, places = spaced_axis("epsilon", [budget(c) for c in cells if not c["baseline"]])
    groups = facets(cells)[: max(1, MOST_PANELS // len(metrics))]
    axes = _quality_axes(metrics, cells)
    for facet, metric in product(groups, metrics):
        curves = []
        for label in dict.fromkeys(c["label"] for c in facet.cells):
            mine = [c for c in facet.cells if c["label"] == label]
            mine.sort(key=budget)
            mean, std = (
                [scaled(metric, c["after"][metric][k]) for c in mine] for k in ("mean", "std")
            )
            x = [places[budget(c)] for c in mine]
            curves.append(Means(label, looks[label], x, mean, std))
        levels = [
            Level(looks[c["label"]], scaled(metric, c["after"][metric]["mean"]))
            for c in facet.baselines
        ]
        marks, words = with_spread(curves, axis)
        panels.append(_panel(metric, facet.title, axis, axes[metric], [*levels, *marks], words))
    return Sheet(title, len(metrics), tuple(panels), _legend(cells, looks))


def trust_sheet(cells: Sequence[Mapping[str, Any]], metrics: Sequence[str], title: str) -> Sheet:
    """What trust costs: quality against budget, a curve for each trust model.

    Where several mechanisms or deltas were asked for, each has a curve of its own.
    """
    base = [c for c in cells if c["baseline"]]
    keys = ["trust", *(k for k in differing(cells) if k in ("mechanism", "delta"))]
    swapped = [
        {**c, "label": told(c, keys), **dict.fromkeys(keys), "of": c["label"]}
        for c in cells
        if not c["baseline"]
    ]
    looks, panels = series_of([*base, *swapped]), list[Panel]()
    for label in dict.fromkeys(c["of"] for c in swapped):
        mine = [*base, *(c for c in swapped if c["of"] == label)]
        for panel in epsilon_sheet(mine, metrics, title, looks).panels:
            panels.append(replace(panel, note=f"{label}, {panel.note}"))
    most = MOST_PANELS - MOST_PANELS % len(metrics)
    legend = _legend([*base, *swapped], looks)
    return Sheet(title, _columns(panels, metrics), tuple(panels[:most]), legend)


def bytes_sheet(cells: Sequence[Mapping[str, Any]], metrics: Sequence[str], title: str) -> Sheet:
    """Quality against bytes sent by a client: a panel for each budget and metric.

    A method has its colour. Cells that differ in partition, unit, trust and the like have a marker
    each; where there are more of these than markers, unit and trust have, and the others panels.
    """
    looks, panels = series_of(cells), []
    sending = [c for c in cells if not c["baseline"] and c["bytes_up"] > 0]
    keys, apart = differing(sending), list[str]()
    if len({told(c, keys) for c in sending}) > len(SHAPES):
        apart = [k for k in keys if k not in ("unit", "trust")]
        keys = [k for k in keys if k not in apart]
    names = list(dict.fromkeys(told(c, keys) for c in sending))
    shapes = dict(zip(names, SHAPES * len(names), strict=False)) if len(names) > 1 else {}
    across = log_axis("bytes up per client", [float(c["bytes_up"]) for c in sending])
    axes = _quality_axes(metrics, cells)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for c in sorted(sending, key=budget):
        spent = "no privacy" if c["epsilon"] is None else f"ε = {c['epsilon']:g}"
        groups.setdefault(", ".join(filter(None, (spent, told(c, apart)))), []).append(c)
    most = max(1, MOST_PANELS // len(metrics))
    for (note, some), metric in product(list(groups.items())[:most], metrics):
        points: dict[tuple[str, str], list[tuple[float, float]]] = {}
        words = []
        for c in some:
            at = float(c["bytes_up"]), scaled(metric, c["after"][metric]["mean"])
            points.setdefault((c["label"], told(c, keys)), []).append(at)
            words.append(f"{c['label']}: {at[1]:.4g} at {c['bytes_up']:,} bytes")
        marks = [
            Line(looks[label], [x for x, _ in at], [y for _, y in at], False, shapes.get(name, ""))
            for (label, name), at in points.items()
        ]
        panels.append(_panel(metric, note, across, axes[metric], marks, "; ".join(words)))
    marked = ((shape, name) for name, shape in shapes.items())
    legend = (*_legend(sending, looks), *marked)
    return Sheet(title, _columns(panels, metrics), tuple(panels), legend)


def _columns(panels: Sequence[Panel], metrics: Sequence[str]) -> int:
    return len(metrics) if len(panels) <= 4 else 2 * len(metrics)


def _legend(
    cells: Iterable[Mapping[str, Any]], looks: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    named = {c["label"]: f"{c['label']} (baseline)" if c["baseline"] else c["label"] for c in cells}
    return tuple((looks[label], text) for label, text in named.items())
