"""The figure of an experiment: a row of panels for each network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from fedcal.experiments.report.figures.curves import (
    quality_axis,
    quality_panel,
    spaced_axis,
)
from fedcal.experiments.report.figures.drawing import Panel, Sheet, save_sheets
from fedcal.experiments.report.figures.style import BASELINE_STYLES, METHOD_STYLES
from fedcal.experiments.research.studies.cells import spread, whole
from fedcal.experiments.research.studies.spec import Experiment, Plot, Record, Rows
from fedcal.metrics.names import scaled

SUFFIXES = (".png", ".svg", ".pdf")

_LABELS = {"rounds": "rounds T", "epsilon": "epsilon", "partition": "Dirichlet beta (skew falls)"}


def sheet_of(experiment: Experiment, cells: Rows) -> Sheet | None:
    """All panels; None for an experiment without a figure, or without cells to draw."""
    cells = whole(cells)
    if not experiment.plots or not cells:
        return None
    looks = _looks(experiment, cells)
    panels = []
    for network in dict.fromkeys(c["network"] for c in cells):
        mine = [c for c in cells if c["network"] == network]
        panels += [_panel(plot, mine, looks) for plot in experiment.plots]
    legend = tuple((style, name) for name, style in looks.items())
    return Sheet(experiment.title, len(experiment.plots), tuple(panels), legend)


def _looks(experiment: Experiment, cells: Rows) -> dict[str, str]:
    """Name in the legend -> style, the same in all panels."""
    drawn = {plot.part: plot.x for plot in experiment.plots}
    names = dict.fromkeys(
        _name(c, drawn[c["part"]]) for c in cells if not c["baseline"] and c["part"] in drawn
    )
    levels = dict.fromkeys(c["title"] for c in cells if c["baseline"])
    return dict(zip(names, METHOD_STYLES * len(names), strict=False)) | dict(
        zip(levels, BASELINE_STYLES * len(levels), strict=False)
    )


def _name(cell: Record, x: str) -> str:
    """Methods at several budgets are several curves where epsilon is not the axis."""
    own = x != "epsilon" and math.isfinite(cell["epsilon"])
    return f"{cell['title']}, ε = {cell['epsilon']:g}" if own else str(cell["title"])


def _panel(plot: Plot, cells: Rows, looks: Mapping[str, str]) -> Panel:
    mine = [c for c in cells if c["part"] == plot.part and not c["baseline"]]
    base = {c["title"]: c for c in cells if c["baseline"]}
    end = "iid" if plot.x == "partition" else "∞"
    axis, places = spaced_axis(_LABELS[plot.x], [_value(c, plot.x) for c in mine], end)
    curves = {}
    for name in dict.fromkeys(_name(c, plot.x) for c in mine):
        line = [c for c in mine if _name(c, plot.x) == name]
        line.sort(key=lambda c: places[_value(c, plot.x)])
        x = [_value(c, plot.x) for c in line]
        std = [scaled(plot.y, spread(c[plot.y])) for c in line]
        curves[name] = (x, [_mean(c, plot.y) for c in line], std)
    levels = {title: _mean(c, plot.y) for title, c in base.items()}
    means = [_mean(c, plot.y) for c in (*mine, *base.values())]
    axes = {**axis, **quality_axis(plot.y, means, [0.0] * len(means))}
    titles = (plot.title, str(cells[0]["network"]))
    return quality_panel(titles, axes, looks, curves, levels, places)


def _mean(cell: Record, metric: str) -> float:
    return scaled(metric, fmean(cell[metric]))


def _value(cell: Record, x: str) -> float:
    """Return a cell's position on the axis; infinity stands at its right end."""
    if x == "rounds":
        return float(cell["rounds"] or 0)
    if x == "epsilon":
        return float(cell["epsilon"])
    kind, _, beta = (cell["partition"] or "").partition(":")
    return float(beta) if kind == "dirichlet" else math.inf


def save(sheet: Sheet, folder: Path, name: str) -> list[str]:
    """Write NAME.png, NAME.svg and NAME.pdf; their names."""
    return save_sheets({name: sheet}, folder, SUFFIXES)
