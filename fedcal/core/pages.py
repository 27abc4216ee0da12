"""A part of a report as data: whoever has something to show says what, `experiments` how."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedcal.core.checks import InputError, damaged

MOST_SERIES = 16
"""Maximum number of series in a chart: more looks cannot be told apart."""

MOST_REFERENCES = 4

MORE = "More metrics"
"""Start of the titles of tables of metrics on demand: on pages, not on terminals."""

Point = tuple[float, float]


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


Entry = str | int | float | Marked


@dataclass(frozen=True)
class Text:
    """Sentences.

    Attributes
    ----------
    title
        of the section; "" = it goes on with the section before
    lines
        from top to bottom; what stands between backquotes is a command
    form
        "list", "plain" (paragraphs), "code" (one line as it is), or "fold": a list that is closed
        until one asks for it by its title
    """

    title: str
    lines: tuple[str, ...]
    form: str = "list"

    def __post_init__(self) -> None:
        _check(self.title, all(isinstance(line, str) for line in (*self.lines, self.form)))


@dataclass(frozen=True)
class Table:
    """Lines of text and numbers.

    Attributes
    ----------
    title
        of the section; "" = it goes on with the section before
    columns
        headings, with units ("rows", "AUC, %"); () = none, for a list of facts
    rows
        of as many entries each; numbers finite. The first entry names the row
    note
        a sentence below; "" = none
    left
        indices of columns of words, aligned left; None = those that hold a text
    sections
        index of a row -> title of the section that begins there, "" for a line alone
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Entry]]
    note: str = ""
    left: tuple[int, ...] | None = None
    sections: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = tuple(tuple(map(_entry, row)) for row in self.rows)
        _check(self.title, all(len(row) == len(self.columns or row) for row in rows))
        _check(self.title, _finite(n for row in rows for n in row if isinstance(n, (int, float))))
        object.__setattr__(self, "rows", rows)
        words = tuple({j for row in rows for j, one in enumerate(row) if isinstance(one, str)})
        object.__setattr__(self, "left", words if self.left is None else tuple(self.left))
        sections = {int(row): title for row, title in self.sections.items()}  # JSON has texts
        object.__setattr__(self, "sections", sections)

    def head(self, rows: int) -> list[str]:
        """Return the first rows and three columns as plain lines, "name: heading entry, ..."."""
        lines = []
        for name, *entries in self.rows[:rows]:
            pairs = zip(self.columns[1:3], entries, strict=False)
            cells = (f"{heading} {number(entry)}" for heading, entry in pairs if entry != "")
            lines.append(f"{number(name)}: {', '.join(cells)}")
        left = len(self.rows) - rows
        return lines + ([f"and {left} more"] if left > 0 else [])


def _entry(value: Any) -> Any:
    return Marked(**value) if isinstance(value, Mapping) else value


def number(value: Entry) -> str:
    """Return a number as people read it: 12,345 or 0.123457."""
    if isinstance(value, Marked):
        return value.text
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


@dataclass(frozen=True)
class Curve:
    """Lines through points, on one pair of axes.

    Attributes
    ----------
    title
        of the section
    x, y
        labels of the axes, with units
    series
        name -> points in the order in which they are joined, at most 16 series
    bands
        name of a series -> (low, high) at each of its points: an interval
    references
        name -> points of a dashed line that the series are compared with (a diagonal), at most 4
    note
        a sentence below; "" = none
    """

    title: str
    x: str
    y: str
    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    bands: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    references: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        _check(self.title, 0 < len(self.series) <= MOST_SERIES and all(self.series.values()))
        few = len(self.references) <= MOST_REFERENCES
        _check(self.title, few and all(self.references.values()))
        for lines in (self.series, self.bands, self.references):
            _check(self.title, _finite(n for line in lines.values() for p in line for n in p))
        for name, band in self.bands.items():
            _check(self.title, len(band) == len(self.series.get(name, ())))
            _check(self.title, all(low <= high for low, high in band))


@dataclass(frozen=True)
class Intervals:
    """Values with intervals, one line for each label: a forest plot.

    Attributes
    ----------
    title
        of the section
    x
        label of the axis, with its unit
    series
        name -> (label, value, low, high) of each line, at most 16 series; a label that several
        series have is one line of the chart
    references
        name -> where a dashed line stands across the chart (the overall value), at most 4
    note
        a sentence below; "" = none
    """

    title: str
    x: str
    series: Mapping[str, tuple[tuple[str, float, float, float], ...]]
    references: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        _check(self.title, 0 < len(self.series) <= MOST_SERIES and all(self.series.values()))
        _check(self.title, len(self.references) <= MOST_REFERENCES)
        ends = [line[1:] for lines in self.series.values() for line in lines]
        _check(self.title, _finite([*(n for end in ends for n in end), *self.references.values()]))
        _check(self.title, all(low <= high for _, low, high in ends))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all lines, from top to bottom."""
        labels = (label for lines in self.series.values() for label, *_ in lines)
        return tuple(dict.fromkeys(labels))


Part = Text | Table | Curve | Intervals


def _check(title: str, holds: bool) -> None:
    """Refuse a part, maybe from a file, that does not have the form its class describes."""
    if not holds:
        raise InputError(f"{title!r}: rows, series, references or numbers are not allowed")


def _finite(numbers: Iterable[float]) -> bool:
    return all(map(math.isfinite, numbers))


def to_json(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Plain values, as strict JSON can hold them; `from_json` reads them."""
    return [{"part": type(part).__name__.lower(), **asdict(part)} for part in parts]


def from_json(plain: Any) -> list[Part]:
    """Return the parts that `to_json` wrote.

    Raises InputError for anything else.
    """
    with damaged("does not contain parts of a page"):
        return [_PARTS[part.pop("part")](**part) for part in _tuples(plain)]


def _tuples(plain: Any) -> Any:
    """Return JSON with its lists turned back into tuples."""
    if isinstance(plain, Mapping):
        return {name: _tuples(part) for name, part in plain.items()}
    return tuple(map(_tuples, plain)) if isinstance(plain, list) else plain


_PARTS: dict[str, type[Part]] = {
    kind.__name__.lower(): kind for kind in (Text, Table, Curve, Intervals)
}
