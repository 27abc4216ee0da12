"""The tables of an experiment, and the same numbers as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedcal.experiments.reproduce.cells import Score as Cell
from fedcal.experiments.reproduce.cells import whole
from fedcal.experiments.reproduce.spec import GridExperiment, Printed, Rows, RowsExperiment
from fedcal.experiments.show.tables import Entry, Marked, TextTable, csv_text

MARK = "†"
"""Follows the classwise ECE of a calibrator that loses more than 1 % of accuracy."""


def blocks_of(experiment: GridExperiment, cells: Sequence[Cell]) -> list[TextTable]:
    """The tables of a grid, one for each block of its parts.

    The best of a line is sought within its block, without pooled baselines: these need all rows
    in one place.
    """
    names = dict.fromkeys(part.block for part in experiment.parts)
    order = {c.title: k for k, c in enumerate(c for p in experiment.parts for c in p.columns)}
    cells = sorted(cells, key=lambda c: order[c.title])
    found = [_block(name, [c for c in cells if c.block == name]) for name in names]
    if experiment.reference:
        found.append(_ratios(experiment, cells))
    return [block for block in found if block.rows]


def _block(title: str, cells: Sequence[Cell]) -> TextTable:
    titles = list(dict.fromkeys(c.title for c in cells))
    fitted = [c for c in cells if not c.baseline]
    varied = [k for k in _VARIED if _several(fitted, k)]
    lines = []
    for place in dict.fromkeys(_line(c, varied) for c in fitted or cells):
        own = [c for c in cells if c.baseline and c.place == place[:2]]
        mine = {c.title: c for c in [*own, *(c for c in fitted if _line(c, varied) == place)]}
        means = [c.mean for c in whole(mine.values()) if _competes(c)]
        best = min(means) if len(means) > 1 else None
        lines.append((_name(place), *(_entry(mine.get(t), best) for t in titles)))
    return TextTable(("network", *titles), lines, title)


_VARIED = {"partition": "{}", "epsilon": "ε = {:g}", "rounds": "T = {}"}
"""Settings that tell lines of one network apart, where a method has several; and their words."""


def _several(cells: Sequence[Cell], key: str) -> bool:
    """Whether a method has more than one value of a setting, and so more than one line."""
    values = {(c.place, c.title, getattr(c, key)) for c in cells}
    return len(values) > len({(c.place, c.title) for c in cells})


def _line(cell: Cell, varied: Sequence[str]) -> tuple[str, ...]:
    """Where a cell stands; baselines have no settings and stand in every line of their network."""
    facts = ((k, getattr(cell, k)) for k in varied)
    return (*cell.place, *(_VARIED[k].format(v) for k, v in facts if v is not None))


def _name(place: Iterable[str]) -> str:
    return ", ".join(filter(None, place))


def _competes(cell: Cell) -> bool:
    return not cell.marked and not cell.method.startswith("pooled-")


def _entry(cell: Cell | None, best: float | None) -> Entry:
    if cell is None:
        return ""
    if cell.failures:
        return "failed"
    text = f"{100 * cell.mean:.3f}"
    if len(cell.classwise_ece) > 1:
        text += f" ({100 * cell.std:.3f})"
    return Marked(text, _competes(cell) and cell.mean == best, MARK if cell.marked else "")


def _ratios(experiment: GridExperiment, cells: Sequence[Cell]) -> TextTable:
    """Classwise ECE over that of the reference, with means over networks."""
    cells = whole(cells)
    below = {c.network: c.mean for c in cells if c.title == experiment.reference}
    mine = [c for c in cells if not c.baseline and c.network in below]
    titles = list(dict.fromkeys(c.title for c in mine))
    found = {(c.place, c.title): c.mean / below[c.network] for c in mine}
    places = list(dict.fromkeys(c.place for c in mine))
    lines = [(_name(place), *(_ratio([found.get((place, t))]) for t in titles)) for place in places]
    rows = list(dict.fromkeys(row for _, row in places))
    for row in [*rows, None] if len(rows) > 1 else [None]:
        some = [p for p in places if row in (None, p[1])]
        means = (_ratio([found.get((p, t)) for p in some]) for t in titles)
        lines.append((f"mean, {row}" if row else "mean", *means))
    title = f"Classwise ECE over that of the {experiment.reference}"
    return TextTable(("network", *titles), lines, title)


def _ratio(values: Sequence[float | None]) -> str:
    """The mean of those that are there."""
    there = [v for v in values if v is not None]
    return f"{sum(there) / len(there):.3f}" if there else ""


def blocks_of_rows(experiment: RowsExperiment, rows: Rows) -> list[TextTable]:
    """The tables of an experiment that is a function."""
    return [
        TextTable(
            tuple(field.title for field in table.fields),
            [tuple(_shown(row, field) for field in table.fields) for row in table.select(rows)],
            table.title,
        )
        for table in experiment.tables
    ]


def _shown(row: Mapping[str, Any], field: Any) -> str:
    value = row.get(field.key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:g}" if field.digits is None else f"{field.factor * value:,.{field.digits}f}"
    return str(value)


def printed_block(table: Printed, names: str) -> TextTable:
    """A table of the paper."""
    rows = [(name, *map(_printed, values)) for name, values in table.rows.items()]
    return TextTable((names, *table.columns), rows, table.caption)


def _printed(value: Sequence[float]) -> str:
    return f"{value[0]:g}" + (f" ({value[1]:g})" if len(value) > 1 else "")


def cells_csv(cells: Iterable[Cell]) -> str:
    """A line for each cell; fractions with all digits."""
    keys = (
        *("network", "row", "block", "title", "method", "epsilon", "rounds", "sampling_rate"),
        *("clients", "partition", "classwise_ece_mean", "classwise_ece_std", "accuracy_before"),
        *("accuracy_mean", "loses_accuracy"),
    )
    return csv_text((c.to_json() for c in cells), keys)


def rows_csv(rows: Rows) -> str:
    """A line for each row, all its keys."""
    return csv_text(rows)
