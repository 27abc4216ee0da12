"""A table of texts, and its writers: terminal, Markdown, HTML; and CSV for programs.

A console and progress, as people see them on a terminal.
"""

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from fedcal.core import checks, pages
from fedcal.core.naming import printable
from fedcal.core.pages import Entry, Marked, Table, number
from fedcal.results.files import to_json

_WIDEST = 1000
"""Characters: a terminal that is narrower wraps lines, but loses none of them."""


def print_table(to: Console, table: Table) -> None:
    """Print a table, as wide as it is."""
    words = table.left or ()
    rich = RichTable(title=table.title or None, title_justify="left")
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


def latex(table: Table, *about: str) -> str:
    """Return the table as LaTeX for booktabs, comments `about` it above, its note below."""

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
    head = "".join(f"% {printable(line)}\n" for line in about)
    return f"{head}{body}\n\\end{{tabular}}\n" + (f"\n{text(table.note)}\n" if table.note else "")


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


_QUIET_SECONDS, _SECONDS_BETWEEN = 3.0, 5.0
"""Without a terminal: when the first line of progress comes, and the next ones."""


class Stopped(checks.FedcalError):
    """Ctrl-C, where something was kept; the exit code is the shells' own."""

    exit_code = 130


class _Harmless(Console):
    """A console on which no text controls the terminal: names and errors may be a stranger's."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Make each text, also those of a table, printable first."""
        return super().render_str(printable(text, lines=True), **options)


def console(*, stderr: bool = False, markup: bool = False) -> Console:
    """Return a console that neither colours nor wraps its output; paths may look like markup."""
    return _Harmless(stderr=stderr, markup=markup, emoji=False, highlight=False, soft_wrap=True)


def must_agree(question: str, otherwise: str) -> None:
    """Ask a person; InputError that says what is `otherwise`, unless they type yes."""
    console().print(f"{question} Type yes:")
    if sys.stdin.readline().strip() != "yes":
        raise checks.InputError(f"{otherwise}: a person must type yes")


def show(
    parts: Iterable[str | pages.Part],
    record: Any = None,
    *,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Print the lines and parts of a result: unless quiet, or its record as JSON instead.

    A record that takes time is given as the function that makes it: it is called for JSON alone.
    Tables are printed with their notes; figures are for pages.
    """
    if json:
        print(to_json(record() if callable(record) else record), end="")
    to = console()
    for part in () if json or quiet else parts:
        if isinstance(part, str):
            to.print(part)
        elif isinstance(part, pages.Table) and not part.title.startswith(pages.MORE):
            print_table(to, part)
            if part.note:
                to.print(part.note)
        elif isinstance(part, pages.Text):
            to.print("\n".join(f"- {line}" for line in part.lines))


class Steps:
    """Progress on stderr: a bar on a terminal; elsewhere, after three seconds, some lines.

    The lines come also while no step ends: an engine starts, or a round takes long.
    """

    def __init__(self, what: str, bar: Progress) -> None:
        what = printable(what)
        self._what, self._bar, self._line = what, bar, what
        self._task = bar.add_task(what, total=None)

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        """`done` of `total` steps are done; `what` is what happens now."""
        self._what = printable(what or self._what)
        self._line = f"{self._what}: {done} of {total}"
        self._bar.update(self._task, completed=done, total=total, description=self._what)

    def write_lines(self, end: Event) -> None:
        """Write a line every few seconds until the event is set."""
        wait = _QUIET_SECONDS
        while not end.wait(wait):
            console(stderr=True).print(f"fedcal: {self._line}")
            wait = _SECONDS_BETWEEN


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Steps]:
    """Progress of the work inside; `quiet` shows none.

    Raises Stopped on Ctrl-C in work that keeps what it has, with what it says.
    """
    seen = sys.stderr.isatty()
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not seen,  # otherwise it would leave a blank line
    )
    steps, end = Steps(what, bar), Event()
    if not quiet and not seen:
        Thread(target=steps.write_lines, args=(end,), daemon=True).start()
    try:
        with bar:
            yield steps
    except checks.Interrupted as e:
        raise Stopped(str(e)) from None
    finally:
        end.set()
