"""The figure of an experiment: a row of panels for each network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedcal.experiments.figures.curves import BASELINE_STYLES, METHOD_STYLES, NAMES, scaled
from fedcal.experiments.figures.panel import (
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
from fedcal.experiments.figures.paper import draw, save_figure
from fedcal.experiments.reproduce.cells import Score as Cell
from fedcal.experiments.reproduce.cells import spread, whole
from fedcal.experiments.reproduce.spec import GridExperiment, Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")

_LOG_FROM = 12.0  # max / min from which classwise ECE gets a logarithmic axis
_ASIDE = 0.006  # of the axis: so far beside each other lie methods at one setting
_LABELS = {"rounds": "rounds T", "epsilon": "epsilon", "partition": "Dirichlet beta (skew falls)"}


def sheet_of(experiment: GridExperiment, cells: Sequence[Cell]) -> Sheet | None:
    """All panels; None for an experiment without a figure, or without cells to draw."""
    cells = whole(cells)
    if not experiment.plots or not cells:
        return None
    looks = _looks(experiment, cells)
    panels = []
    for network in dict.fromkeys(c.network for c in cells):
        mine = [c for c in cells if c.network == network]
        panels += [_panel(plot, mine, looks) for plot in experiment.plots]
    legend = tuple((style, name) for name, style in looks.items())
    return Sheet(experiment.title, len(experiment.plots), tuple(panels), legend)


def _looks(experiment: GridExperiment, cells: Sequence[Cell]) -> dict[str, str]:
    """Name in the legend -> style, the same in all panels."""
    drawn = {plot.part: plot.x for plot in experiment.plots}
    names = dict.fromkeys(_name(c, drawn[c.part]) for c in cells if _curved(c) and c.part in drawn)
    levels = dict.fromkeys(c.title for c in cells if c.baseline)
    return dict(zip(names, METHOD_STYLES * len(names), strict=False)) | dict(
        zip(levels, BASELINE_STYLES * len(levels), strict=False)
    )


def _curved(cell: Cell) -> bool:
    return not cell.baseline


def _name(cell: Cell, x: str) -> str:
    """Methods at several budgets are several curves where epsilon is not the axis."""
    own = x != "epsilon" and cell.epsilon is not None
    return f"{cell.title}, ε = {cell.epsilon:g}" if own else cell.title


def _panel(plot: Plot, cells: Sequence[Cell], looks: Mapping[str, str]) -> Panel:
    mine = [c for c in cells if c.part == plot.part and _curved(c)]
    levels = {c.title: c for c in cells if c.baseline}
    axis, places = _across(plot.x, [_value(c, plot.x) for c in mine])
    marks: list[Mark] = [
        Level(looks[title], scaled(plot.y, _mean(c, plot.y))) for title, c in levels.items()
    ]
    said = []
    names = list(dict.fromkeys(_name(c, plot.x) for c in mine))
    for k, name in enumerate(names):
        line = [c for c in mine if _name(c, plot.x) == name]
        line.sort(key=lambda c: places[_value(c, plot.x)])
        aside = _ASIDE * (axis.high - axis.low) * (k - (len(names) - 1) / 2)
        x = [places[_value(c, plot.x)] + aside for c in line]
        y = [scaled(plot.y, _mean(c, plot.y)) for c in line]
        std = [scaled(plot.y, spread(_values(c, plot.y))) for c in line]
        low = [max(m - s, 0.0) for m, s in zip(y, std, strict=True)]
        high = [m + s for m, s in zip(y, std, strict=True)]
        marks += [Whiskers(looks[name], x, low, high), Line(looks[name], x, y)]
        said.append(f"{name}: {', '.join(f'{v:.4g}' for v in y)}")
    means = [scaled(plot.y, _mean(c, plot.y)) for c in (*mine, *levels.values())]
    label = _LABELS[plot.x]
    return Panel(
        title=plot.title,
        note=cells[0].network,
        x=axis,
        y=_upright(plot.y, means),
        marks=tuple(marks),
        said=f"{cells[0].network}: {NAMES[plot.y]} against {label}. {'; '.join(said)}.",
        aspect=0.8,
    )


def _values(cell: Cell, metric: str) -> tuple[float, ...]:
    found: tuple[float, ...] = getattr(cell, metric)
    return found


def _mean(cell: Cell, metric: str) -> float:
    values = _values(cell, metric)
    return sum(values) / len(values)


def _value(cell: Cell, x: str) -> float:
    """Where a cell belongs on the axis; infinity at its right end."""
    if x == "rounds":
        return float(cell.rounds or 0)
    if x == "epsilon":
        return math.inf if cell.epsilon is None else cell.epsilon
    kind, _, beta = (cell.partition or "").partition(":")
    return float(beta) if kind == "dirichlet" else math.inf


def _across(x: str, values: Sequence[float]) -> tuple[Axis, dict[float, float]]:
    """A logarithmic axis with a tick at each value, and "∞" or "iid" at the right."""
    finite = sorted({v for v in values if math.isfinite(v)})
    places = {v: math.log10(v) for v in finite}
    low, high = (places[finite[0]], places[finite[-1]]) if finite else (0.0, 0.0)
    room = max(0.06 * (high - low), 0.1)
    if math.inf in values:
        high = places[math.inf] = high + max(0.2 * (high - low), 0.3)
    ticks: list[tuple[float, str]] = []
    for v, place in reversed(places.items()):  # the right end always has its tick
        if not ticks or ticks[-1][0] - place > 0.1 * (high - low):
            end = "iid" if x == "partition" else "∞"
            ticks.append((place, end if math.isinf(v) else f"{v:g}"))
    return Axis(_LABELS[x], low - room, high + room, tuple(reversed(ticks))), places


def _upright(metric: str, means: Sequence[float]) -> Axis:
    if metric != "accuracy" and spread_of(means) > _LOG_FROM and min(means) > 0:
        return log_axis(NAMES[metric], means)
    return linear_axis(NAMES[metric], means)


def save(sheet: Sheet, folder: Path, name: str) -> list[str]:
    """Write NAME.png, NAME.svg and NAME.pdf; their names."""
    figure = draw(sheet)
    for suffix in SUFFIXES:
        path = folder / f"{name}{suffix}"
        if suffix == ".pdf":
            _save_pdf(figure, path)
        else:
            save_figure(figure, path)
    return [f"{name}{suffix}" for suffix in SUFFIXES]


def _save_pdf(figure: Figure, path: Path) -> None:
    """With letters as letters (TrueType), as publishers ask, and no date."""
    from matplotlib import rc_context

    with rc_context({"pdf.fonttype": 42}):
        figure.savefig(path, metadata={"CreationDate": None})
