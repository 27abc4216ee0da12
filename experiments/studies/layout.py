"""The tables and the figure of an experiment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from experiments.studies.cells import MEAN, STD, whole
from experiments.studies.spec import Experiment, Field, Plot, Record, Rows
from fedcal.core.pages import Table
from fedcal.results.figures.drawing import (
    BASELINE_STYLES,
    LINES,
    METHOD_STYLES,
    Panel,
    Sheet,
    curve,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARK = "†"
"""Follows the classwise ECE of a calibrator that loses more than 1 % of accuracy."""

LEGEND = (
    "Mean (standard deviation over seeds) of the classwise ECE on test rows, in %. "
    f"{MARK}: loses more than 1 % of accuracy."
)

CSV_KEYS = (
    *("network", "row", "block", "title", "method", "epsilon", "rounds", "sampling_rate"),
    *("clients", "partition", MEAN, STD, "accuracy_before", "accuracy_mean", "loses_accuracy"),
)
"""Keys of a grid's rows that its CSV file has; the file of a function has all keys."""

VARIED = {"partition": "{}", "epsilon": "ε = {:g}", "rounds": "T = {}"}
"""Settings that tell lines of one network apart, where a method has several; and their words."""


def tables_of(experiment: Experiment, rows: Rows) -> list[Table]:
    """Return the tables of a function; or those of a grid, one for each block of its parts.

    The paper's own table comes last.
    """
    found = [
        Table(
            table.title,
            tuple(field.title for field in table.fields),
            [tuple(_shown(r, field) for field in table.fields) for r in rows if table.has(r)],
            left=(0,),
        )
        for table in experiment.tables
    ]
    order = {title: k for k, title in enumerate(t for p in experiment.parts for t in p.methods)}
    for name in dict.fromkeys(part.block for part in experiment.parts):
        mine = [row for row in rows if row["block"] == name]
        if mine:
            found.append(_block(name, sorted(mine, key=lambda row: order[row["title"]])))
    if paper := experiment.paper:
        lines = [(name, *map(_printed, values)) for name, values in paper.rows.items()]
        names = "network" if experiment.parts else "method"
        found.append(Table(paper.caption, (names, *paper.columns), lines, left=(0,)))
    return found


def _shown(row: Record, field: Field) -> str:
    value = row.get(field.key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:g}" if field.digits is None else f"{field.factor * value:,.{field.digits}f}"
    return str(value)


def _printed(value: Sequence[float]) -> str:
    return f"{value[0]:g}" + (f" ({value[1]:g})" if len(value) > 1 else "")


def pivot(
    title: str,
    rows: Rows,
    heads: Sequence[str],
    line: Callable[[Record], tuple[str, ...]],
    column: str,
    shown: Callable[[Record], str],
) -> Table:
    """Lay rows out with a column for each value of a key, and a line for each `line` (`heads`)."""
    found: dict[tuple[str, ...], dict[Any, str]] = {}
    for row in rows:
        found.setdefault(line(row), {})[row[column]] = shown(row)
    values = dict.fromkeys(row[column] for row in rows)
    lines = [(*key, *(of.get(value, "") for value in values)) for key, of in found.items()]
    return Table(title, (*heads, *map(str, values)), lines, left=tuple(range(len(heads))))


def _block(title: str, cells: Rows) -> Table:
    """Return the classwise ECE of each method; baselines have no settings: a line of their own."""
    told = [c for c in cells if not c["baseline"]]
    titles = {c["title"] for c in told}
    varied = [k for k in VARIED if len({(c["title"], c[k]) for c in told}) > len(titles)]

    def line(cell: Record) -> tuple[str, ...]:
        words = (VARIED[k].format(cell[k]) for k in varied if cell[k] not in (None, math.inf))
        return (", ".join(filter(None, (cell["network"], cell["row"], *words))),)

    return pivot(title, cells, ("network",), line, "title", _entry)


def _entry(cell: Record) -> str:
    if cell["failures"]:
        return "failed"
    text = f"{100 * cell[MEAN]:.3f}"
    if len(cell["classwise_ece"]) > 1:
        text += f" ({100 * cell[STD]:.3f})"
    return text + (MARK if cell["loses_accuracy"] else "")


# -- the figure ----------------------------------------------------------------------------------


def sheet_of(experiment: Experiment, rows: Rows) -> Sheet | None:
    """Draw a row of panels for each of the data; None where there is nothing to draw."""
    rows = whole(rows) if experiment.parts else rows
    key = "network" if experiment.parts else "data"
    data = dict.fromkeys(row[key] for row in rows if key in row)
    plots = [(name, plot) for name, plot in product(data or [None], experiment.plots)]
    panels = [_lines(plot, [r for r in rows if r.get(key) == name]) for name, plot in plots]
    if not any(panels):
        return None
    names = dict.fromkeys(name for lines in panels for name in lines)
    level = {row["title"] for row in rows if row.get("baseline")}
    styles = {True: iter(BASELINE_STYLES * len(names)), False: iter(METHOD_STYLES * len(names))}
    looks = {name: next(styles[name in level]) for name in names}
    drawn = tuple(
        Panel(
            plot.title,
            partial(_draw, lines, plot, looks),
            f"{plot.title}, {name or ''}. {_said(lines)}",
            aspect=0.8,
            note=str(name or ""),
        )
        for (name, plot), lines in zip(plots, panels, strict=True)
        if lines
    )
    legend = tuple((look, name) for name, look in looks.items())
    return Sheet(experiment.title, len(experiment.plots), drawn, legend)


def _lines(plot: Plot, rows: Rows) -> dict[str, list[tuple[Any, float]]]:
    """Name of each line -> its points; a baseline of a grid has one, whatever its part."""
    found: dict[str, list[tuple[Any, float]]] = {}
    for row in rows:
        level = bool(row.get("baseline"))
        if not level and not all(row.get(k) == v for k, v in plot.where.items()):
            continue
        for y in plot.y:
            words = [y] if len(plot.y) > 1 else []
            words += [str(row["title" if level else k]) for k in (plot.by or ("",)) if level or k]
            if row.get(y) is not None:
                name = ", ".join(dict.fromkeys(words)) or y
                found.setdefault(name, []).append((None if level else row[plot.x], row[y]))
    return found


def _draw(
    lines: Mapping[str, Sequence[tuple[Any, float]]],
    plot: Plot,
    looks: Mapping[str, str],
    ax: Axes,
) -> None:
    known = [*dict.fromkeys(x for line in lines.values() for x, _ in line if x is not None)]
    words = known if any(isinstance(x, str) for x in known) else []
    ax.set(xlabel=plot.x.replace("_", " "), ylabel=plot.y[0].replace("_", " ").partition("/")[0])
    if not words and 0 < 20 * min(known) < max(known):
        ax.set_xscale("log")
    for name, points in lines.items():
        if points[0][0] is None:
            ax.axhline(points[0][1], **LINES[looks[name]])
            continue
        x, y = zip(*(points if words else sorted(points)), strict=True)
        curve(ax, looks[name], [words.index(at) for at in x] if words else x, y)
    if words:
        ax.set_xticks(range(len(words)), labels=words, rotation=30)


def _said(lines: Mapping[str, Sequence[tuple[Any, float]]]) -> str:
    def told() -> Iterator[str]:
        for name, points in lines.items():
            yield f"{name}: " + ", ".join(f"{x or 'all'} {y:.4g}" for x, y in points)

    return "; ".join(told())
