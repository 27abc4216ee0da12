"""Tables as people and programs read them: Markdown, CSV, the terminal, and parts of a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from fedcal.experiments.reproduce.cells import Score as Cell
from fedcal.experiments.reproduce.cells import whole
from fedcal.experiments.reproduce.spec import GridExperiment, Printed, Rows, RowsExperiment

MARK = "†"


@dataclass(frozen=True)
class Entry:
    """What stands in one place of a table.

    Attributes
    ----------
    text : with mean and standard deviation
    best : the lowest of its line among those without a mark
    marked : loses more than 1 % of accuracy
    """

    text: str
    best: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Block:
    """A table: lines of entries below headings, the first of which is above the lines' names."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Entry, ...]], ...]


def blocks_of(experiment: GridExperiment, cells: Sequence[Cell]) -> list[Block]:
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
    return [block for block in found if block.lines]


def _block(title: str, cells: Sequence[Cell]) -> Block:
    titles = list(dict.fromkeys(c.title for c in cells))
    fitted = [c for c in cells if not c.baseline]
    varied = [k for k in _VARIED if _several(fitted, k)]
    lines = []
    for place in dict.fromkeys(_line(c, varied) for c in fitted or cells):
        own = [c for c in cells if c.baseline and c.place == place[:2]]
        mine = {c.title: c for c in [*own, *(c for c in fitted if _line(c, varied) == place)]}
        means = [c.mean for c in whole(mine.values()) if _competes(c)]
        best = min(means) if len(means) > 1 else None
        lines.append((_name(place), tuple(_entry(mine.get(t), best) for t in titles)))
    return Block(title, ("network", *titles), tuple(lines))


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
        return Entry("")
    if cell.failures:
        return Entry("failed")
    text = f"{100 * cell.mean:.3f}"
    if len(cell.classwise_ece) > 1:
        text += f" ({100 * cell.std:.3f})"
    return Entry(text, _competes(cell) and cell.mean == best, cell.marked)


def _ratios(experiment: GridExperiment, cells: Sequence[Cell]) -> Block:
    """Classwise ECE over that of the reference, with means over networks."""
    cells = whole(cells)
    below = {c.network: c.mean for c in cells if c.title == experiment.reference}
    mine = [c for c in cells if not c.baseline and c.network in below]
    titles = list(dict.fromkeys(c.title for c in mine))
    found = {(c.place, c.title): c.mean / below[c.network] for c in mine}
    places = list(dict.fromkeys(c.place for c in mine))
    lines = [
        (_name(place), tuple(_ratio([found.get((place, t))]) for t in titles)) for place in places
    ]
    rows = list(dict.fromkeys(row for _, row in places))
    for row in [*rows, None] if len(rows) > 1 else [None]:
        some = [p for p in places if row in (None, p[1])]
        means = tuple(_ratio([found.get((p, t)) for p in some]) for t in titles)
        lines.append((f"mean, {row}" if row else "mean", means))
    title = f"Classwise ECE over that of the {experiment.reference}"
    return Block(title, ("network", *titles), tuple(lines))


def _ratio(values: Sequence[float | None]) -> Entry:
    """The mean of those that are there."""
    there = [v for v in values if v is not None]
    return Entry(f"{sum(there) / len(there):.3f}" if there else "")


def blocks_of_rows(experiment: RowsExperiment, rows: Rows) -> list[Block]:
    """The tables of an experiment that is a function."""
    found = []
    for table in experiment.tables:
        first, *rest = table.fields
        lines = tuple(
            (_shown(row, first), tuple(Entry(_shown(row, f)) for f in rest))
            for row in table.select(rows)
        )
        found.append(Block(table.title, tuple(f.title for f in table.fields), lines))
    return found


def _shown(row: Mapping[str, Any], field: Any) -> str:
    value = row.get(field.key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:g}" if field.digits is None else f"{field.factor * value:,.{field.digits}f}"
    return str(value)


def printed_block(table: Printed, names: str) -> Block:
    """A table of the paper."""
    lines = tuple(
        (name, tuple(Entry(_printed(value)) for value in values))
        for name, values in table.rows.items()
    )
    return Block(table.caption, (names, *table.columns), lines)


def _printed(value: Sequence[float]) -> str:
    return f"{value[0]:g}" + (f" ({value[1]:g})" if len(value) > 1 else "")


def as_markdown(block: Block) -> str:
    """A block below its heading."""
    body = [(name, *(_plain(e, "**") for e in entries)) for name, entries in block.lines]
    rows = ["| " + " | ".join(t.replace("|", r"\|") for t in row) + " |" for row in body]
    head = "| " + " | ".join(block.headings) + " |"
    rule = "|---" + "|---:" * (len(block.headings) - 1) + "|"
    title = f"### {block.title}\n\n" if block.title else ""
    return title + "\n".join([head, rule, *rows]) + "\n"


def as_table(block: Block) -> Table:
    """A block for the terminal."""
    table = Table(title=block.title or None, title_justify="left", pad_edge=False)
    for k, heading in enumerate(block.headings):
        table.add_column(heading, justify="right" if k else "left", no_wrap=True)
    for name, entries in block.lines:
        table.add_row(name, *(_plain(e, "*") for e in entries))
    return table


def _plain(entry: Entry, star: str) -> str:
    text = f"{star}{entry.text}{star}" if entry.best else entry.text
    return text + (MARK if entry.marked else "")


def cells_csv(cells: Iterable[Cell]) -> str:
    """A line for each cell; fractions with all digits."""
    keys = (
        *("network", "row", "block", "title", "method", "epsilon", "rounds", "sampling_rate"),
        *("clients", "partition", "classwise_ece_mean", "classwise_ece_std", "accuracy_before"),
        *("accuracy_mean", "loses_accuracy"),
    )
    return _csv(keys, (c.to_json() for c in cells))


def rows_csv(rows: Rows) -> str:
    """A line for each row, all its keys."""
    return _csv(tuple(dict.fromkeys(key for row in rows for key in row)), rows)


def _csv(keys: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
