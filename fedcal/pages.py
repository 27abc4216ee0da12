"""A part of a report as data: whoever has something to show says what, `experiments` how."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedcal.errors import InputError

MOST_SERIES = 16
"""Of one curve: more looks cannot be told apart."""

Entry = str | int | float


@dataclass(frozen=True)
class Table:
    """Lines of text and numbers.

    Attributes
    ----------
    title
        of the section
    columns
        headings, with units ("rows", "AUC, %")
    rows
        of as many entries each; numbers finite
    note
        a sentence below; "" = none
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InputError(f"table {self.title!r}: a row has not {len(self.columns)} entries")
        _finite(self.title, [n for row in self.rows for n in row if not isinstance(n, str)])


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
    note
        a sentence below; "" = none
    """

    title: str
    x: str
    y: str
    series: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 < len(self.series) <= MOST_SERIES or not all(self.series.values()):
            raise InputError(f"curve {self.title!r} needs 1 to {MOST_SERIES} series with points")
        _finite(self.title, [n for line in self.series.values() for point in line for n in point])


def _finite(title: str, numbers: Sequence[float]) -> None:
    if not all(map(math.isfinite, numbers)):
        raise InputError(f"{title!r}: a number to show is not finite")


def to_json(parts: Sequence[Table | Curve]) -> list[dict[str, Any]]:
    """Plain values, as strict JSON can hold them; `from_json` reads them."""
    return [{"part": type(part).__name__.lower(), **asdict(part)} for part in parts]


def from_json(plain: Any) -> list[Table | Curve]:
    """What `to_json` wrote.

    Raises
    ------
    InputError
        If it is anything else.
    """
    try:
        return [_PARTS[part.pop("part")](**part) for part in _tuples(plain)]
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        what = " ".join(f"{type(e).__name__}: {e}".split())
        raise InputError(f"holds no tables and curves ({what})") from None


def _tuples(plain: Any) -> Any:
    """Lists of JSON as the tuples that they were."""
    if isinstance(plain, Mapping):
        return {name: _tuples(part) for name, part in plain.items()}
    return tuple(map(_tuples, plain)) if isinstance(plain, list) else plain


_PARTS: dict[str, type[Table | Curve]] = {"table": Table, "curve": Curve}
