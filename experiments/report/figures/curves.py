"""Curves: test metrics by round, and a comparison's quality against epsilon and against bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedcal.experiments.report.figures.drawing import Panel, Sheet, curve, level
from fedcal.experiments.report.figures.style import BASELINE_STYLES, LINES, METHOD_STYLES, SHAPES
from fedcal.metrics.names import THE_POSITIVE, Named, heading, named, scaled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BY_ROUND = ("ece", "classwise_ece", "nll", "accuracy")
MOST_PANELS = 24
_ASIDE = 0.007  # of the axis: so far beside each other lie methods at one budget
_LOG_FROM = 12.0  # max / min from which a metric gets a logarithmic axis


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
    judged = [r for r in rounds if "test" in r]
    if not judged:
        return None
    at = [0, *(int(r["round"]) for r in judged)]
    values = {k: [before[k], *(r["test"][k] for r in judged)] for k in BY_ROUND}
    if all("temperature" in r for r in judged):
        values["temperature"] = [1.0, *(float(r["temperature"]) for r in judged)]
    panels = tuple(
        _round_panel(named(metric, score, positive), at, [scaled(metric, v) for v in series])
        for metric, series in values.items()
    )
    legend = (("reference", "before"), ("after", "after each round"))
    return Sheet(title, len(panels), panels, legend, "rounds")


def _round_panel(name: Named, at: Sequence[int], y: Sequence[float]) -> Panel:
    text = "; ".join(f"round {t}: {v:.4g}" for t, v in zip(at, y, strict=True))

    def plot(ax: Axes) -> None:
        ax.set(xlabel="round", xlim=(0, at[-1]), ylabel="%" if name.percent else name.title)
        ax.locator_params("x", integer=True)
        level(ax, "reference", y[0])
        curve(ax, "after", at, y)

    about = f"{name.title}{', %' * name.percent} by round"
    return Panel(name.title, plot, f"{about}. {text}.", aspect=0.75)


# -- a comparison --------------------------------------------------------------------------------


class Facet(NamedTuple):
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
    """List the public facts beside method and epsilon in which cells differ (baselines aside)."""
    cells = [c for c in cells if not c["baseline"]]
    names = [k for k in _ALIKE if len({c.get(k) for c in cells}) > 1]
    return names + [k for k in _IF_VARIED if _choices(cells, k)]


def _choices(cells: Iterable[Mapping[str, Any]], key: str) -> dict[tuple[Any, ...], list[Any]]:
    """Map method, epsilon and the keys of `_without` to values of `key`, if there are several."""
    choices: dict[tuple[Any, ...], dict[Any, None]] = {}
    for c in cells:
        choices.setdefault(_without(c, key), {})[c.get(key)] = None
    return {k: list(values) for k, values in choices.items() if len(values) > 1}


def _without(cell: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    also = ("trust",) if key == "mechanism" else ()  # it follows from the trust model, too
    return (cell["label"], cell["epsilon"], *(cell.get(k) for k in (*_ALIKE, *also)))


def told(cell: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Describe those facts of a cell; facts that it lacks (delta without privacy) are left out."""
    return ", ".join(_named(k, cell[k]) for k in keys if cell.get(k) is not None)


def facets(cells: Iterable[Mapping[str, Any]]) -> list[Facet]:
    """Group the cells; a title names only what differs between groups.

    A cell that has no such choice (a run without privacy has no delta) is in the groups of all
    choices, where a curve needs it.
    """
    cells = list(cells)
    fitted = [c for c in cells if not c["baseline"]]
    keys = differing(fitted)
    extra = [k for k in keys if k in _IF_VARIED]
    choices = {k: _choices(fitted, k) for k in extra}
    chosen = {k: {v for some in choices[k].values() for v in some} for k in extra}

    def free(c: Mapping[str, Any], key: str) -> bool:
        choice = key not in extra or c.get(key) in chosen[key] or _without(c, key) in choices[key]
        return not choice

    def place(c: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(c.get(k) for k in (*_ALIKE, *extra))

    def fits(c: Mapping[str, Any], values: tuple[Any, ...]) -> bool:
        pairs = zip((*_ALIKE, *extra), values, strict=True)
        return all(c.get(k) == value or free(c, k) for k, value in pairs)

    places = dict.fromkeys(place(c) for c in fitted if not any(free(c, k) for k in extra))
    alone = [place(c) for c in fitted if not any(fits(c, p) for p in places)]
    groups = []
    for values in (*places, *dict.fromkeys(alone)):
        facts = dict(zip((*_ALIKE, *extra), values, strict=True))
        members = tuple(c for c in fitted if fits(c, values))
        base = {c["label"]: c for c in cells if c["baseline"] and c["data"] == facts["data"]}
        title = told(facts, keys) or str(facts["partition"])
        groups.append(Facet(title, members, tuple(base.values())))
    return groups or [Facet("", (), tuple(c for c in cells if c["baseline"]))]


_WORDS = {
    "clients": "{:,} clients",
    "sampling_rate": "sampling rate {:g}",
    "delta": "δ = {:g}",
    "rounds": "{:,} rounds",
    "unit": "unit {}",
    "trust": "trust {}",
}


def _named(key: str, value: Any) -> str:
    text = _WORDS.get(key, "{}").format(value)
    return text.removesuffix("s") if value == 1 else text


def series_of(cells: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Label -> style, the same in every figure of one comparison."""
    labels = list(dict.fromkeys((c["label"], bool(c["baseline"])) for c in cells))
    looks = {True: iter(BASELINE_STYLES * len(labels)), False: iter(METHOD_STYLES * len(labels))}
    return {label: next(looks[base]) for label, base in labels}


Scale = Mapping[str, Any]
"""Label, limits and ticks of an axis, as `Axes.set` takes them."""


def quality_axis(metric: str, means: Sequence[float], stds: Sequence[float]) -> Scale:
    """Return a metric's y axis with room for whiskers, logarithmic if means are far apart.

    Parameters
    ----------
    means, stds
        as they are shown
    """
    ends = [v for m, s in zip(means, stds, strict=True) for v in (max(m - s, 0.0), m + s)]
    low, high = min(ends), max(ends)
    room = 0.06 * (high - low) or 0.02 * abs(high) or 1.0
    if metric == "accuracy" or not 0 < _LOG_FROM * min(means) < max(means):
        return {"ylabel": heading(metric), "ylim": (low - room, high + room)}
    low = max(low, 0.6 * min(means))
    return {"ylabel": heading(metric), "yscale": "log", "ylim": (low / 1.25, high * 1.25)}


def _quality_axes(metrics: Iterable[str], cells: Sequence[Mapping[str, Any]]) -> dict[str, Scale]:
    return {m: quality_axis(m, *(_values(m, cells, k) for k in ("mean", "std"))) for m in metrics}


def _values(metric: str, cells: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    return [scaled(metric, c["after"][metric][key]) for c in cells]


def spaced_axis(
    label: str, values: Sequence[float], end: str = "∞"
) -> tuple[Scale, dict[float, float]]:
    """Return a logarithmic x axis with a tick for each value that has room, and their positions.

    Parameters
    ----------
    end
        what infinity, at the right, is called
    """
    finite = sorted({v for v in values if math.isfinite(v)})
    places = {v: math.log10(v) for v in finite}
    low, high = (places[finite[0]], places[finite[-1]]) if finite else (0.0, 0.0)
    room = max(0.35 * (high - low) / max(len(finite) - 1, 1), 0.3)
    if len(finite) < len(set(values)):
        high = places[math.inf] = high + max(room, 0.45)
    ticks: dict[float, str] = {}
    for value, place in reversed(places.items()):  # the right end always has its tick
        if not ticks or min(ticks) - place > 0.09 * (high - low + 2 * room):
            ticks[place] = end if math.isinf(value) else f"{value:g}"
    scale = {"xlabel": label, "xlim": (low - room, high + room), "xticks": list(ticks)}
    return scale | {"xticklabels": list(ticks.values())}, places


def budget(cell: Mapping[str, Any]) -> float:
    """Epsilon of a cell; infinity without privacy."""
    return float(cell["epsilon"])


Means = tuple[str, str, Sequence[float], Sequence[float], Sequence[float]]
"""A curve over seeds: its name, its style, x, means and standard deviations."""


def quality_panel(
    plotted: tuple[str, str, str],
    axes: Scale,
    curves: Sequence[Means],
    levels: Sequence[tuple[str, float]],
) -> Panel:
    """Curves with whiskers of one standard deviation, a little beside each other.

    Parameters
    ----------
    plotted
        title, note and what is told of the panel before its numbers
    levels
        style and mean of what does not depend on x
    """
    title, note, about = plotted

    def plot(ax: Axes) -> None:
        ax.set(**axes)
        for style, height in levels:
            level(ax, style, height)
        for k, (_, style, x, mean, std) in enumerate(curves):
            aside = _ASIDE * float(np.ptp(axes["xlim"])) * (k - (len(curves) - 1) / 2)
            means, stds = np.array(mean), np.array(std)
            curve(ax, style, np.array(x) + aside, means, np.maximum(means - stds, 0), means + stds)

    words = "; ".join(f"{name}: {', '.join(f'{m:.4g}' for m in y)}" for name, _, _, y, _ in curves)
    text = f"{about} against {axes['xlabel']}. {words}."
    return Panel(title, plot, text, aspect=0.8, note=note)


def epsilon_sheet(cells: Sequence[Mapping[str, Any]], metrics: Sequence[str], title: str) -> Sheet:
    """Quality against budget: a row for each group of cells, a column for each metric."""
    looks, panels = series_of(cells), []
    x, places = spaced_axis("epsilon", [budget(c) for c in cells if not c["baseline"]])
    groups = facets(cells)[: MOST_PANELS // len(metrics)]
    axes = _quality_axes(metrics, cells)
    for facet, metric in product(groups, metrics):
        curves = []
        for label in dict.fromkeys(c["label"] for c in facet.cells):
            mine = sorted((c for c in facet.cells if c["label"] == label), key=budget)
            mean, std = (_values(metric, mine, k) for k in ("mean", "std"))
            curves.append((label, looks[label], [places[budget(c)] for c in mine], mean, std))
        means = _values(metric, facet.baselines, "mean")
        levels = [(looks[c["label"]], mean) for c, mean in zip(facet.baselines, means, strict=True)]
        plotted = (named(metric).title, facet.title, f"{facet.title}: {heading(metric)}")
        panels.append(quality_panel(plotted, {**x, **axes[metric]}, curves, levels))
    return Sheet(title, len(metrics), tuple(panels), _legend(cells, looks))


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
    sent = [c["bytes_up"] for c in sending]
    limits = (min(sent) / 1.25, max(sent) * 1.25)
    x = {"xlabel": "bytes up per client", "xscale": "log", "xlim": limits}
    axes = _quality_axes(metrics, cells)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for c in sorted(sending, key=budget):
        spent = "no privacy" if math.isinf(c["epsilon"]) else f"ε = {c['epsilon']:g}"
        groups.setdefault(", ".join(filter(None, (spent, told(c, apart)))), []).append(c)
    most = MOST_PANELS // len(metrics)
    for (note, some), metric in product(list(groups.items())[:most], metrics):
        points, words = [], []
        for c in some:
            series, mean = looks[c["label"]], scaled(metric, c["after"][metric]["mean"])
            points.append((series, shapes.get(told(c, keys), series), c["bytes_up"], mean))
            words.append(f"{c['label']}: {mean:.4g} at {c['bytes_up']:,} bytes")
        plot = partial(_plot_points, points=points, axes={**x, **axes[metric]})
        text = f"{heading(metric)} against bytes up per client, {note}. {'; '.join(words)}."
        panels.append(Panel(named(metric).title, plot, text, aspect=0.8, note=note))
    marked = ((shape, name) for name, shape in shapes.items())
    legend = (*_legend(sending, looks), *marked)
    columns = len(metrics) if len(panels) <= 4 else 2 * len(metrics)
    return Sheet(title, columns, tuple(panels), legend)


def _plot_points(ax: Axes, points: Sequence[tuple[str, str, float, float]], axes: Scale) -> None:
    """Points of a series, of another one that lends its marker, x and y."""
    ax.set(**axes)
    for series, shape, *at in points:
        look = LINES[series] | {"marker": LINES[shape]["marker"], "linestyle": "none"}
        ax.plot(*at, label=series, **look)


def _legend(
    cells: Iterable[Mapping[str, Any]], looks: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    named = {c["label"]: f"{c['label']} (baseline)" if c["baseline"] else c["label"] for c in cells}
    return tuple((looks[label], text) for label, text in named.items())
