"""Sheets for a paper: Matplotlib figures, saved as PNG (300 dots per inch) and SVG.

Nothing is laid out by a solver: sizes are in inches and the same for every panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcal.experiments.figures.diagrams import bars_in, reliability_sheet
from fedcal.experiments.figures.panel import (
    STYLES,
    Axis,
    Band,
    Bars,
    Level,
    Mark,
    Panel,
    Points,
    Sheet,
    Style,
    Whiskers,
)
from fedcal.metrics import Reliability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 300
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.52, 0.10, 0.42, 0.26  # inches around a panel
_TIGHT, _LINE = 0.2, 0.14  # instead, where labels are the neighbour's; a line of the title
_HATCH = {"/": "////", "x": "xxxx", "": None}
_SETTINGS: Any = {
    "font.size": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedcal",
    "hatch.linewidth": 0.6,
    "font.family": "sans-serif",
}


def draw(sheet: Sheet) -> Figure:
    """A figure of all panels, with one legend below; neighbours share the labels of equal axes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = [sheet.panels[k : k + sheet.columns] for k in range(0, len(sheet.panels), sheet.columns)]
    across = 2.5 if sheet.columns <= 2 else 1.8 if sheet.columns <= 3 else 1.35
    same_x = [_all_equal([p.x for q in (row, nxt) for p in q]) for row, nxt in pairwise(rows)]
    same_y = all(_all_equal([p.y for p in row]) for row in rows)
    step = across + (_TIGHT if same_y else _LEFT + _RIGHT)
    inside = (_LEFT - _TIGHT if same_y else -_RIGHT) + sheet.columns * step + _RIGHT
    width = max(inside, 4.2)
    legend, per_line = _legend_size(sheet, width)
    tall = [across * row[0].aspect for row in rows]
    above = [_TOP + _LINE * max(_lines(p) for p in row) - _LINE for row in rows]
    below = [*(_TIGHT if same else _BOTTOM for same in same_x), _BOTTOM]
    height = 0.3 + sum(tall) + sum(above) + sum(below) + legend
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height))
        look: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 9}
        figure.text(0.5, 1 - 0.08 / height, sheet.title, parse_math=False, **look)
        top = height - 0.3
        for r, row in enumerate(rows):
            top -= above[r] + tall[r]
            for k, panel in enumerate(row):
                left = (width - inside) / 2 + _LEFT + k * step
                alone = r == len(rows) - 1 or not same_x[r] or k >= len(rows[r + 1])
                frame = _Frame(figure, panel, left, top, across, tall[r])
                _draw_panel(frame, x=alone, y=k == 0 or not same_y)
            top -= below[r]
        bars = bars_in(sheet)
        words = figure.legend(
            [_handle(series, series in bars) for series, _ in sheet.legend],
            [text for _, text in sheet.legend],
            loc="lower center",
            ncols=per_line,
            frameon=False,
            fontsize=7.5,
            handlelength=2.6,
            columnspacing=1.2,
            borderaxespad=0.2,
        )
        for entry in words.get_texts():
            entry.set_parse_math(False)  # names of data and methods are no formulas
    return figure


def _all_equal(axes: Sequence[Axis]) -> bool:
    return all(axis == axes[0] for axis in axes)


def _lines(panel: Panel) -> int:
    return (1 if panel.title else 0) + (1 if panel.note else 0)


def _legend_size(sheet: Sheet, width: float) -> tuple[float, int]:
    """Height in inches, and entries in a line."""
    longest = max((len(text) for _, text in sheet.legend), default=0)
    per_line = max(1, min(len(sheet.legend), int(width / (0.55 + 0.062 * longest))))
    return 0.1 + 0.17 * -(-len(sheet.legend) // per_line), per_line


def reliability_figure(panels: Mapping[str, Reliability], title: str) -> Figure:
    """Top-label reliability diagrams side by side, each over its confidence histogram.

    Parameters
    ----------
    panels : heading -> reliability data of the same test rows
    title : above all of them
    """
    return draw(reliability_sheet(dict(panels), title))


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG at 300 dots per inch, or an SVG with text as text; no date in it."""
    from matplotlib import rc_context

    options: dict[str, Any] = {"dpi": DPI}
    if path.suffix == ".svg":
        options["metadata"] = {"Date": None, "Creator": None}
    else:
        options["pil_kwargs"] = {"compress_level": 1}
    with rc_context(_SETTINGS):
        figure.savefig(path, **options)


def save_sheets(sheets: Mapping[str, Sheet], folder: Path) -> list[str]:
    """Write each sheet as NAME.png and NAME.svg into the folder; the names written."""
    written = []
    for name, sheet in sheets.items():
        figure = draw(sheet)
        for suffix in (".png", ".svg"):
            save_figure(figure, folder / f"{name}{suffix}")
            written.append(f"{name}{suffix}")
    return written


@dataclass(frozen=True)
class _Frame:
    """Where a panel lies on a figure, in inches; artists are placed in inches, without `Axes`.

    Matplotlib's axes, with their ticks and locators, would take three quarters of the time.
    """

    figure: Figure
    panel: Panel
    left: float
    bottom: float
    width: float
    height: float

    def x(self, values: Points | float) -> Any:
        """Inches of values on the x axis."""
        return self.left + self.width * self.panel.x.places(values)

    def y(self, values: Points | float) -> Any:
        """Inches of values on the y axis."""
        return self.bottom + self.height * self.panel.y.places(values)

    def add(self, artist: Any, clip: bool = True) -> None:
        """Put an artist on the figure, cut at the edges of the plotted area."""
        from matplotlib.patches import Rectangle

        inches = self.figure.dpi_scale_trans
        artist.set_transform(inches)
        if clip:
            box = Rectangle((self.left, self.bottom), self.width, self.height, transform=inches)
            artist.set_clip_path(box)
        artist.set_zorder(
            2 + len(self.figure.artists) + len(self.figure.lines) + len(self.figure.texts)
        )
        self.figure.add_artist(artist)

    def lines(self, segments: Any, clip: bool = True, **look: Any) -> None:
        """Straight lines, pairs of points in inches."""
        from matplotlib.collections import LineCollection

        if len(segments):
            self.add(LineCollection(segments, **look), clip)

    def text(self, x: float, y: float, text: str, **look: Any) -> None:
        """A text at a point in inches."""
        from matplotlib.text import Text

        self.add(Text(x, y, text, parse_math=False, **look), clip=False)


def _draw_panel(frame: _Frame, *, x: bool, y: bool) -> None:
    """`x`, `y`: whether the axis is labelled."""
    panel, left, bottom = frame.panel, frame.left, frame.bottom
    right, top = left + frame.width, bottom + frame.height
    title = "\n".join(text for text in (panel.title, panel.note) if text)
    frame.text((left + right) / 2, top + 0.08, title, ha="center", fontsize=8, linespacing=1.15)
    across = [float(frame.x(v)) for v, _ in panel.x.ticks]
    up = [float(frame.y(v)) for v, _ in panel.y.ticks]
    grid = [((v, bottom), (v, top)) for v in across] + [((left, v), (right, v)) for v in up]
    frame.lines(grid, clip=False, colors="#88888840", linewidths=0.5)
    for mark in panel.marks:
        _draw_mark(frame, mark)
    frame.lines(
        [((left, top), (left, bottom)), ((left, bottom), (right, bottom))],
        clip=False,
        colors="black",
        linewidths=0.7,
        capstyle="projecting",
    )
    if x:
        for v, (_, text) in zip(across, panel.x.ticks, strict=True):
            frame.text(v, bottom - 0.05, text, ha="center", va="top", fontsize=7)
        middle = (left + right) / 2
        frame.text(middle, bottom - 0.19, panel.x.label, ha="center", va="top", fontsize=8)
    if y:
        for v, (_, text) in zip(up, panel.y.ticks, strict=True):
            frame.text(left - 0.05, v, text, ha="right", va="center_baseline", fontsize=7)
        look: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 90, "fontsize": 8}
        frame.text(left - _LEFT + 0.13, (bottom + top) / 2, panel.y.label, **look)


def _draw_mark(frame: _Frame, mark: Mark) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Polygon, Rectangle

    style = STYLES[mark.series]
    if isinstance(mark, Bars):
        x0, x1, y0, y1 = (
            f(v)
            for f, v in (
                (frame.x, mark.left),
                (frame.x, mark.right),
                (frame.y, mark.low),
                (frame.y, mark.high),
            )
        )
        boxes = [
            Rectangle((a, c), b - a, d - c)
            for a, b, c, d in zip(x0, x1, y0, y1, strict=True)
            if d > c
        ]
        frame.add(PatchCollection(boxes, label=mark.series, **_box(mark.series)))
    elif isinstance(mark, Level):
        y = float(frame.y(mark.y))
        across = (frame.left, frame.left + frame.width)
        frame.add(Line2D(across, (y, y), color=style.colour, linestyle=_dash(style), linewidth=1))
    elif isinstance(mark, Whiskers):
        ends = zip(frame.x(mark.x), frame.y(mark.low), frame.y(mark.high), strict=True)
        frame.lines([((x, a), (x, b)) for x, a, b in ends], colors=style.colour, linewidths=0.7)
    elif isinstance(mark, Band):
        x = frame.x(mark.x)
        below = zip(x, frame.y(mark.low), strict=True)
        above = zip(x[::-1], frame.y(mark.high)[::-1], strict=True)
        corners = [*below, *above]
        frame.add(Polygon(corners, facecolor=style.colour, alpha=0.15, linewidth=0))
    else:
        size = 3.2 if len(mark.x) <= 60 else 2.2
        look = _line(style, size, mark.line)
        line = Line2D(frame.x(mark.x), frame.y(mark.y), label=mark.series, **look)
        frame.add(line, clip=not style.marker)


def _dash(style: Style) -> Any:
    return (0, tuple(d * 0.8 for d in style.dash)) if style.dash else "-"


def _line(style: Style, size: float, line: bool = True) -> dict[str, Any]:
    return {
        "color": style.colour,
        "linestyle": _dash(style) if line else "none",
        "linewidth": 1.1,
        "marker": style.marker or "none",
        "markersize": size,
        "markerfacecolor": style.colour if style.filled else "white",
        "markeredgewidth": 0.8,
    }


def _box(series: str) -> dict[str, Any]:
    style = STYLES[series]
    face, edge = (style.colour, "white") if style.filled else ("none", style.colour)
    return {
        "hatch": _HATCH[style.hatch],
        "linewidth": 0.4,
        "facecolor": face,
        "edgecolor": edge,
    }


def _handle(series: str, bars: bool) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return Patch(**_box(series)) if bars else Line2D([], [], **_line(STYLES[series], 3.6))
