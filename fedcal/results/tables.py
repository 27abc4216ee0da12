"""A table of texts, and its writers: terminal, Markdown, HTML; and CSV for programs."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable

from fedcal.core.naming import printable
from fedcal.core.pages import Entry, Marked, Table, number

_WIDEST = 1000
"""Characters: a terminal that is narrower wraps lines, but loses none of them."""


def print_table(to: Console, table: Table, *, gap: int = 1) -> None:
    """Print a table, as wide as it is, with so many spaces to the right of an entry."""
    words = table.left or ()
    rich = RichTable(
        title=table.title or None, title_justify="left", pad_edge=gap > 0, padding=(0, gap)
    )
    for k, heading in enumerate(table.columns):
        rich.add_column(heading, justify="left" if k in words else "right", no_wrap=True)
    for k, row in enumerate(table.rows):
        if k in table.sections:
            rich.add_section()
        rich.add_row(*(printable(plain(entry, "*")) for entry in row))
    lines = Measurement.get(to, to.options.update(max_width=_WIDEST), rich)
    to.width = max(to.width, lines.maximum)
    to.print(rich)


def markdown(table: Table) -> str:
    """Return the table as Markdown below its title (a heading of level 3), without sections."""
    rows = [table.columns, *([plain(entry, "**") for entry in row] for row in table.rows)]
    head, *body = ("| " + " | ".join(t.replace("|", r"\|") for t in row) + " |" for row in rows)
    rule = "|".join("---" if k in (table.left or ()) else "---:" for k in range(len(table.columns)))
    title = f"### {table.title}\n\n" if table.title else ""
    note = f"\n{table.note}\n" if table.note else ""
    return title + "\n".join([head, f"|{rule}|", *body]) + "\n" + note


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "†": r"$^\dagger$", "‡": r"$^\ddagger$", "ε": r"$\varepsilon$"},
    **{"∞": r"$\infty$", "→": r"$\to$", "−": "$-$"},
}


def latex(table: Table) -> str:
    """Return the table as LaTeX for the package booktabs, its note below, without the title."""

    def text(entry: Entry) -> str:
        words = plain(entry, "") if isinstance(entry, Marked) else number(entry)
        escaped = "".join(_LATEX.get(letter, letter) for letter in words)
        bold = isinstance(entry, Marked) and entry.best
        return rf"\textbf{{{escaped}}}" if bold else escaped

    rules = [r"\midrule"] * any(table.columns)
    lines = [" & ".join(map(text, table.columns)) + r" \\", *rules] if table.columns else []
    for k, row in enumerate(table.rows):
        lines += [r"\midrule"] * (k in table.sections)
        lines.append(" & ".join(map(text, row)) + r" \\")
    form = "".join("l" if k in (table.left or ()) else "r" for k in range(len(table.columns)))
    body = "\n".join([rf"\begin{{tabular}}{{{form}}}", r"\toprule", *lines, r"\bottomrule"])
    return f"{body}\n\\end{{tabular}}\n" + (f"\n{text(table.note)}\n" if table.note else "")


def plain(entry: Entry, bold: str = "") -> str:
    """Return an entry as plain text, the best one between marks for bold type."""
    if not isinstance(entry, Marked):
        return number(entry)
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
