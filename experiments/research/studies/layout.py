"""The tables of an experiment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fedcal.core.pages import Entry, Marked, Table
from fedcal.experiments.research.studies.cells import MEAN, whole
from fedcal.experiments.research.studies.spec import Experiment, Field, Printed, Record, Rows

MARK = "†"
"""Follows the classwise ECE of a calibrator that loses more than 1 % of accuracy."""


CSV_KEYS = (
    *("network", "row", "block", "title", "method", "epsilon", "rounds", "sampling_rate"),
    *("clients", "partition", MEAN, "classwise_ece_std", "accuracy_before"),
    *("accuracy_mean", "loses_accuracy"),
)
"""What the CSV file of a grid has of its rows; that of a function has all keys."""


def blocks_of(experiment: Experiment, rows: Rows) -> list[Table]:
    """Return the tables of a function; or those of a grid, one for each block of its parts.

    The best of a line is sought within its block, without pooled baselines: these need all rows
    in one place.
    """
    if experiment.tables:
        return [
            Table(
                table.title,
                tuple(field.title for field in table.fields),
                [
                    tuple(_shown(row, field) for field in table.fields)
                    for row in rows
                    if table.has(row)
                ],
                left=(0,),
            )
            for table in experiment.tables
        ]
    order = [title for part in experiment.parts for title in part.methods]
    last = {title: k for k, title in enumerate(order)}
    rows = sorted(rows, key=lambda row: last[row["title"]])
    names = dict.fromkeys(part.block for part in experiment.parts)
    found = [_block(name, [row for row in rows if row["block"] == name]) for name in names]
    if experiment.reference:
        found.append(_ratios(experiment.reference, whole(rows)))
    return [block for block in found if block.rows]


def _shown(row: Record, field: Field) -> str:
    value = row.get(field.key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:g}" if field.digits is None else f"{field.factor * value:,.{field.digits}f}"
    return str(value)


def _block(title: str, cells: Rows) -> Table:
    titles = list(dict.fromkeys(c["title"] for c in cells))
    fitted = [c for c in cells if not c["baseline"]]
    varied = [k for k in _VARIED if _several(fitted, k)]
    lines = []
    for place in dict.fromkeys(_line(c, varied) for c in fitted or cells):
        own = [c for c in cells if c["baseline"] and _place(c) == place[:2]]
        mine = {c["title"]: c for c in [*own, *(c for c in fitted if _line(c, varied) == place)]}
        means = [c[MEAN] for c in whole([*mine.values()]) if _competes(c)]
        best = min(means) if len(means) > 1 else None
        lines.append((_name(place), *(_entry(mine.get(t), best) for t in titles)))
    return Table(title, ("network", *titles), lines, left=(0,))


_VARIED = {"partition": "{}", "epsilon": "ε = {:g}", "rounds": "T = {}"}
"""Settings that tell lines of one network apart, where a method has several; and their words."""


def _several(cells: Rows, key: str) -> bool:
    """Return True if a method has more than one value of a setting, and so more than one line."""
    values = {(_place(c), c["title"], c[key]) for c in cells}
    return len(values) > len({(_place(c), c["title"]) for c in cells})


def _place(cell: Record) -> tuple[str, ...]:
    return cell["network"], cell["row"]


def _line(cell: Record, varied: Sequence[str]) -> tuple[str, ...]:
    """Return a cell's line; baselines have no settings and stand in every line."""
    told = (k for k in varied if cell[k] not in (None, math.inf))
    return (*_place(cell), *(_VARIED[k].format(cell[k]) for k in told))


def _name(place: Iterable[str]) -> str:
    return ", ".join(filter(None, place))


def _competes(cell: Record) -> bool:
    return not cell["loses_accuracy"] and not cell["method"].startswith("pooled-")


def _entry(cell: Record | None, best: float | None) -> Entry:
    if cell is None:
        return ""
    if cell["failures"]:
        return "failed"
    text = f"{100 * cell[MEAN]:.3f}"
    if len(cell["classwise_ece"]) > 1:
        text += f" ({100 * cell['classwise_ece_std']:.3f})"
    mark = MARK if cell["loses_accuracy"] else ""
    return Marked(text, _competes(cell) and cell[MEAN] == best, mark)


def _ratios(reference: str, cells: Rows) -> Table:
    """Classwise ECE over that of the reference, with means over networks."""
    below = {c["network"]: c[MEAN] for c in cells if c["title"] == reference}
    mine = [c for c in cells if not c["baseline"] and c["network"] in below]
    titles = list(dict.fromkeys(c["title"] for c in mine))
    found = {(_place(c), c["title"]): c[MEAN] / below[c["network"]] for c in mine}
    places = list(dict.fromkeys(map(_place, mine)))
    lines = [(_name(place), *(_ratio([found.get((place, t))]) for t in titles)) for place in places]
    rows = list(dict.fromkeys(row for _, row in places))
    for row in [*rows, None] if len(rows) > 1 else [None]:
        some = [p for p in places if row in (None, p[1])]
        means = (_ratio([found.get((p, t)) for p in some]) for t in titles)
        lines.append((f"mean, {row}" if row else "mean", *means))
    return Table(
        f"Classwise ECE over that of the {reference}", ("network", *titles), lines, left=(0,)
    )


def _ratio(values: Sequence[float | None]) -> str:
    """Format the mean of the values that are not None."""
    there = [v for v in values if v is not None]
    return f"{sum(there) / len(there):.3f}" if there else ""


def printed_block(table: Printed, names: str) -> Table:
    """Return a table as the paper printed it."""
    rows = [(name, *map(_printed, values)) for name, values in table.rows.items()]
    return Table(table.caption, (names, *table.columns), rows, left=(0,))


def _printed(value: Sequence[float]) -> str:
    return f"{value[0]:g}" + (f" ({value[1]:g})" if len(value) > 1 else "")
