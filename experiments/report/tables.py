"""A table of texts, and its writers: terminal, Markdown, HTML; and CSV for programs."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable

from fedcal.core import pages
from fedcal.core.printable import printable

_WIDEST = 1000
"""Characters: a terminal that is narrower wraps lines, but loses none of them."""


@dataclass(frozen=True)
class Marked:
    """A table entry with emphasis or a mark.

    Attributes
    ----------
    text
        the number, or the name of the row
    best
        of its row or column: bold, with a star where there is no bold type
    mark
        follows the text: a dagger, or a word ("better" and "worse" are coloured in HTML)
    small
        in HTML a second, smaller line; elsewhere it follows the text
    """

    text: str
    best: bool = False
    mark: str = ""
    small: str = ""


Entry = str | Marked


@dataclass(frozen=True)
class TextTable:
    """The content of a table, independent of its output format.

    Attributes
    ----------
    columns
        headings; () = none, for a list of facts
    rows
        entries, as many as there are columns; the first names the row
    title
        above the table; "" = none
    left
        indices of columns of words, aligned left; the others are numbers
    sections
        index of a row -> title of the section that begins there, "" for a line alone
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Entry]]
    title: str = ""
    left: Collection[int] = (0,)
    sections: Mapping[int, str] = field(default_factory=dict)


def of_part(part: pages.Table) -> TextTable:
    """Convert a table of an artifact; columns of numbers alone are aligned right."""
    rows = [tuple(map(pages.number, row)) for row in part.rows]
    words = {j for row in part.rows for j, entry in enumerate(row) if isinstance(entry, str)}
    return TextTable(part.columns, rows, part.title, words)


def print_table(to: Console, table: TextTable, *, edge: bool = False, gap: int = 1) -> None:
    """Print a table, as wide as it is.

    Parameters
    ----------
    edge
        spaces at the outer borders, too
    gap
        spaces to the right of an entry
    """
    rich = RichTable(
        title=table.title or None, title_justify="left", pad_edge=edge, padding=(0, gap)
    )
    for k, heading in enumerate(table.columns):
        rich.add_column(heading, justify="left" if k in table.left else "right", no_wrap=True)
    for k, row in enumerate(table.rows):
        if k in table.sections:
            rich.add_section()
        rich.add_row(*(printable(_plain(entry, "*")) for entry in row))
    lines = Measurement.get(to, to.options.update(max_width=_WIDEST), rich)
    to.width = max(to.width, lines.maximum)
    to.print(rich)


def markdown(table: TextTable) -> str:
    """Return the table as Markdown below its title (a heading of level 3), without sections."""
    rows = [table.columns, *([_plain(entry, "**") for entry in row] for row in table.rows)]
    head, *body = ("| " + " | ".join(t.replace("|", r"\|") for t in row) + " |" for row in rows)
    rule = "|".join("---" if k in table.left else "---:" for k in range(len(table.columns)))
    title = f"### {table.title}\n\n" if table.title else ""
    return title + "\n".join([head, f"|{rule}|", *body]) + "\n"


def _plain(entry: Entry, bold: str) -> str:
    if isinstance(entry, str):
        return entry
    text = f"{bold}{entry.text}{bold}" if entry.best else entry.text
    gap = " " * entry.mark[:1].isalpha()  # none before a dagger, one before a word
    return text + gap + entry.mark + (f" {entry.small}" if entry.small else "")


def csv_text(rows: Iterable[Mapping[str, Any]], keys: Sequence[str] | None = None) -> str:
    """Return a line for each row, for a spreadsheet or pandas: all digits, nothing for None.

    Parameters
    ----------
    rows
        mappings; lists and mappings in them are joined by semicolons
    keys
        the columns; without them every key of any row
    """
    rows = list(rows)
    columns = keys or tuple(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _joined(v) for k, v in row.items()} for row in rows)
    return text.getvalue()


def _joined(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ";".join(f"{k}={v}" for k, v in value.items())
    return ";".join(map(repr, value)) if isinstance(value, list) else value
