"""Curves: test metrics by round, and a comparison's quality against epsilon and against bytes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedcal.metrics.names import THE_POSITIVE, heading, named, scaled
from fedcal.results.figures.drawing import BASELINE_STYLES, METHOD_STYLES, Panel, Sheet, plotter

BY_ROUND = ("ece", "classwise_ece", "nll", "accuracy")
MOST_PANELS = 24
_ASIDE = 0.007  # of the axis: so far beside each other lie methods at one budget
_LOG_FROM = 12.0  # max / min from which a metric gets a logarithmic axis

Cell = Mapping[str, Any]


def rounds_sheet(
    before: Mapping[str, float],
    rounds: Sequence[Mapping[str, Any]],
    title: str,
    score: str = "",
    positive: str = THE_POSITIVE,
) -> Sheet | None:
    """Test metrics after each release, from "before" as round 0; None without any release.

    Parameters
    ----------
    before
        metrics without a calibrator
    rounds
        records of `rounds.jsonl`; those without `test` are left out
    score, positive
        as `fedcal.metrics.names.heading` takes them
    """
    tested = [r for r in rounds if "test" in r]
    if not tested:
        return None
    at = [0, *(int(r["round"]) for r in tested)]
    values = {k: [before[k], *(r["test"][k] for r in tested)] for k in BY_ROUND}
    if all("temperature" in r for r in tested):
        values["temperature"] = [1.0, *(float(r["temperature"]) for r in tested)]
    ticks = range(0, at[-1] + 1, max(-(-at[-1] // 5), 1))
    axes: dict[str, Any] = {"xlabel": "round", "xlim": (0, at[-1]), "xticks": ticks}
    panels = []
    for metric, series in values.items():
        name, y = named(metric, score, positive), [scaled(metric, v) for v in series]
        lines = [("reference", (0, at[-1]), (y[0], y[0])), ("after", at, y)]
        plot = plotter(lines, **axes, ylabel="%" if name.percent else name.title)
        text = "; ".join(f"round {t}: {v:.4g}" for t, v in zip(at, y, strict=True))
        description = f"{name.title}{', %' * name.percent} by round. {text}."
        panels.append(Panel(name.title, plot, description, aspect=0.75))
    legend = (("reference", "before"), ("after", "after each round"))
    return Sheet(title, len(panels), tuple(panels), legend, "rounds")


# -- a comparison --------------------------------------------------------------------------------

_ALIKE = ("clients", "partition", "sampling_rate", "unit")
_IF_CHOSEN = ("delta", "trust", "mechanism", "rounds")
"""These follow from method and epsilon unless they are given: named only where several were."""


def differing(cells: Iterable[Cell]) -> dict[str, set[Any]]:
    """Map the public facts beside method and epsilon in which cells differ to their values.

    A fact that follows from those found before it is none; a delta of 0 follows from a mechanism,
    and not the other way round.
    """
    found, given = dict[str, set[Any]](), ["data", "label", "epsilon", *_ALIKE]
    for key in (*_ALIKE, *_IF_CHOSEN):
        choices: dict[Any, set[Any]] = {}
        for c in cells:
            others = () if key in _ALIKE else tuple(c.get(k) for k in given)
            choices.setdefault(others, set()).add(c.get(key))
        if values := {v for some in choices.values() if len(some) > 1 for v in some}:
            found[key] = values
            given += [key] * (key != "delta")
    return found


def facets(cells: Sequence[Cell], keys: Mapping[str, set[Any]]) -> dict[str, list[Cell]]:
    """Group cells by their values of these facts, in words.

    A cell that has none of a fact's values (a run without privacy has no delta) is in all groups
    that it otherwise agrees with.
    """

    def facts(c: Cell) -> dict[str, Any]:
        return {k: c.get(k) for k, values in keys.items() if c.get(k) in values}

    places = {tuple(facts(c).items()): facts(c) for c in cells}.values()
    largest = [p for p in places if not any(p.items() < other.items() for other in places)]
    return {in_words(p): [c for c in cells if facts(c).items() <= p.items()] for p in largest}


_WORDS = {
    "clients": "{:,} clients",
    "sampling_rate": "sampling rate {:g}",
    "delta": "δ = {:g}",
    "epsilon": "ε = {:g}",
    "rounds": "{:,} rounds",
    "unit": "unit {}",
    "trust": "trust {}",
}


def in_words(facts: Mapping[str, Any]) -> str:
    """Describe facts; those without a value are left out."""
    words = []
    for key, value in facts.items():
        text = "no privacy" if value == math.inf else _WORDS.get(key, "{}").format(value)
        words += [text.removesuffix("s") if value == 1 else text] if value is not None else []
    return ", ".join(words)


Scale = Mapping[str, Any]
"""Label, limits and ticks of an axis, as `Axes.set` takes them."""


def quality_axis(metric: str, means: Sequence[float], stds: Sequence[float], top: int = 0) -> Scale:
    """Return a metric's y axis with room for whiskers, logarithmic if means are far apart.

    It has no label: the metric is the panel's title.

    Parameters
    ----------
    means, stds
        as they are shown
    top
        lines of text at the top
    """
    mean, std = np.array(means), np.array(stds)
    low, high = float(np.maximum(mean - std, 0).min()), float((mean + std).max())
    room = 0.06 * (high - low) or 0.02 * abs(high) or 1.0
    if metric == "accuracy" or not 0 < _LOG_FROM * min(means) < max(means):
        return {"ylim": (low - room, high + (1 + 2.3 * top) * room)}
    low = max(low, 0.6 * min(means))
    return {"yscale": "log", "ylim": (low / 1.25, high * 1.25 ** (1 + top))}


def spaced_axis(label: str, values: Iterable[float]) -> tuple[Scale, dict[float, float]]:
    """Return a logarithmic x axis with a tick for each value that has room, and their positions.

    Infinity stands at the right.
    """
    known = sorted(set(values))
    places = {v: math.log10(v) for v in known if math.isfinite(v)}
    low, high = min(places.values(), default=0.0), max(places.values(), default=0.0)
    room = max(0.35 * (high - low) / max(len(places) - 1, 1), 0.3)
    if len(places) < len(known):
        high = places[math.inf] = high + max(room, 0.45)
    ticks: dict[float, str] = {}
    for value, place in reversed(places.items()):  # the right end always has its tick
        if not ticks or min(ticks) - place > 0.09 * (high - low + 2 * room):
            ticks[place] = "∞" if math.isinf(value) else f"{value:g}"
    scale = {"xlabel": label, "xlim": (low - room, high + room), "xticks": list(ticks)}
    return scale | {"xticklabels": list(ticks.values())}, places


def quality_sheet(
    cells: Sequence[Cell], metrics: Sequence[str], title: str, by: str = "epsilon"
) -> Sheet:
    """Quality against the budget, or against bytes sent by a client, which grow with rounds.

    Each group of cells has a row of panels, of as many metrics as there is room for; against
    bytes a group is of one budget. Curves have whiskers of one standard deviation and stand a
    little beside each other. A baseline far from all methods has its number at the edge, no line.

    Parameters
    ----------
    title
        "" = none, and no partition that all share; several metrics then have lower panels
    by
        "epsilon" or "bytes_up"
    """
    budget = by == "epsilon"
    mine = [c for c in cells if not c["baseline"] and (budget or c["bytes_up"] > 0)]
    keys, places = differing(mine), None
    if budget:
        x, places = spaced_axis("epsilon", [c["epsilon"] for c in mine])
    else:
        mine.sort(key=lambda c: float(c["epsilon"]))
        keys = {"epsilon": {c["epsilon"] for c in mine}, **keys}
        keys.pop("rounds", None)
        sent = [c["bytes_up"] for c in mine]
        limits = (min(sent) / 1.25, max(sent) * 1.25)
        x = {"xlabel": "bytes up per client", "xscale": "log", "xlim": limits}
    groups = facets(mine, keys)
    baselines = {c["label"]: c for c in cells if c["baseline"]}
    methods = dict.fromkeys(c["label"] for c in cells if not c["baseline"])
    looks = dict(zip(baselines, BASELINE_STYLES * len(cells), strict=False))
    looks |= zip(methods, METHOD_STYLES * len(cells), strict=False)
    metrics = metrics[: max(MOST_PANELS // len(groups), 1)] if groups else metrics

    def of(metric: str, some: Iterable[Cell], key: str) -> list[float]:
        return [scaled(metric, c["after"][metric][key]) for c in some]

    y, far = dict[str, Scale](), dict[str, str]()
    for m in metrics:
        low, high = quality_axis(m, of(m, mine, "mean"), of(m, mine, "std"))["ylim"]
        across = dict(zip(baselines, of(m, baselines.values(), "mean"), strict=True))
        at_edge = [k for k, v in across.items() if not 2 * low - high <= v <= 2 * high - low]
        far[m] = "\n".join(f"{'↓↑'[across[k] > high]} {k} {across[k]:.3g}" for k in at_edge)
        near = [c for c in cells if c["label"] not in at_edge]
        y[m] = quality_axis(m, of(m, near, "mean"), of(m, near, "std"), len(at_edge))
    panels, aspect = [], 0.8 if title else 1.6 / max(len(metrics), 2)
    for (group, some), metric in product([*groups.items()][:MOST_PANELS], metrics):
        across = dict(zip(baselines, of(metric, baselines.values(), "mean"), strict=True))
        lines: list[Any] = [(looks[k], x["xlim"], (v, v)) for k, v in across.items()]
        labels, words = dict.fromkeys(c["label"] for c in some), []
        for k, label in enumerate(labels):
            points = sorted((c for c in some if c["label"] == label), key=lambda c: float(c[by]))
            at = [float(c[by]) for c in points]
            mean, std = (np.array(of(metric, points, key)) for key in ("mean", "std"))
            aside = _ASIDE * float(np.ptp(x["xlim"])) * (k - (len(labels) - 1) / 2)
            place = at if places is None else np.array([places[v] for v in at]) + aside
            lines.append((looks[label], place, mean, np.maximum(mean - std, 0), mean + std))
            pairs = zip(mean, at, strict=True)
            words.append(f"{label}: " + ", ".join(f"{m:.4g} at {v:,g}" for m, v in pairs))
        note, name = group or str(some[0]["partition"]) * bool(title), heading(metric)
        description = f"{note}{': ' * bool(note)}{name} against {x['xlabel']}. {'; '.join(words)}."
        plot = plotter(lines, far[metric], **x, **y[metric])
        panels.append(Panel(name, plot, description, aspect=aspect, note=note))
    legend = [(look, f"{k} (baseline)" if k in baselines else k) for k, look in looks.items()]
    wide = len(metrics) if budget or len(panels) <= 4 else 2 * len(metrics)
    return Sheet(title, wide, tuple(panels), tuple(legend))
