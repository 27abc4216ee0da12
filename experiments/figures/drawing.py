"""Sheets drawn by Matplotlib, for a paper (PNG, SVG, PDF) and, panel by panel, for a page.

Nothing is laid out by a solver: sizes are in inches and the same for every panel. Artists are
placed in inches, too, without `Axes`, whose ticks and locators would take three quarters of the
time. Matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.experiments.figures.diagrams import bars_in, reliability_sheet
from fedcal.experiments.figures.panel import (
    HUES,
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
INK, GREY, PAPER = (HUES[name][0] for name in ("ink", "grey", "paper"))
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.52, 0.10, 0.42, 0.26  # inches around a panel
_TIGHT, _LINE = 0.2, 0.14  # instead, where labels are the neighbour's; a line of the title
_ALONE, _KEY = 2.2, (0.47, 0.19)  # inches: width of a panel on a page, size of a legend's sample
_HATCH = {"/": "////", "x": "xxxx", "": None}
_SETTINGS: Any = {
    "font.size": 8,
    "font.family": "sans-serif",
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # letters as letters (TrueType), as publishers ask
    "svg.fonttype": "none",
    "svg.hashsalt": "fedcal",
}
_METADATA: dict[str, Any] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None},
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
                title = [text for text in (panel.title, panel.note) if text]
                _draw_panel(frame, x=alone, y=k == 0 or not same_y, title=title)
            top -= below[r]
        bars = bars_in(sheet)
        words = figure.legend(
            [_sample(series, series in bars) for series, _ in sheet.legend],
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


def draw_panel(panel: Panel) -> Figure:
    """A figure of one panel without its title, for a page; letters are sized by the page."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    left = 0.25 + 0.06 * max(4, *(len(text) for _, text in panel.y.ticks), 0)
    width = _ALONE - left - _RIGHT
    tall = width * panel.aspect
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(_ALONE, 0.08 + tall + 0.38))
        _draw_panel(_Frame(figure, panel, left, 0.38, width, tall), labels_at=left - 0.08)
    return figure


def draw_key(series: str, bars: bool) -> Figure:
    """A figure of a legend's sample."""
    from matplotlib.figure import Figure

    width, height = _KEY
    figure = Figure(figsize=_KEY)
    handle: Any = _sample(series, bars)
    if bars:
        handle.set_bounds(0.03, 0.02, width - 0.06, height - 0.04)
    else:
        handle.set_data([0.02, width / 2, width - 0.02], [height / 2] * 3)
        handle.set_markevery([1])
        handle.set_markersize(5.5)
    handle.set_transform(figure.dpi_scale_trans)
    figure.add_artist(handle)
    return figure


def svg_of(figure: Figure) -> str:
    """The figure as an SVG on nothing, text as text."""
    from matplotlib import rc_context

    text = io.BytesIO()
    figure.patch.set_visible(False)
    with rc_context(_SETTINGS):
        figure.savefig(text, format="svg", metadata=_METADATA[".svg"])
    return text.getvalue().decode()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG at 300 dots per inch, or an SVG or PDF with text as text; no date in it."""
    from matplotlib import rc_context

    options: dict[str, Any] = {"dpi": DPI, "metadata": _METADATA.get(path.suffix)}
    if path.suffix == ".png":
        options["pil_kwargs"] = {"compress_level": 1}
    with rc_context(_SETTINGS):
        figure.savefig(path, **options)


def save_sheets(
    sheets: Mapping[str, Sheet], folder: Path, suffixes: Sequence[str] = (".png", ".svg")
) -> list[str]:
    """Write each sheet as NAME.png and NAME.svg into the folder; the names written."""
    written = []
    for name, sheet in sheets.items():
        figure = draw(sheet)
        for suffix in suffixes:
            save_figure(figure, folder / f"{name}{suffix}")
            written.append(f"{name}{suffix}")
    return written


@dataclass(frozen=True)
class _Frame:
    """Where a panel lies on a figure, in inches."""

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

        figure, inches = self.figure, self.figure.dpi_scale_trans
        artist.set_transform(inches)
        if clip:
            box = Rectangle((self.left, self.bottom), self.width, self.height, transform=inches)
            artist.set_clip_path(box)
        drawn = [*figure.artists, *figure.lines, *figure.patches, *figure.texts]
        artist.set_zorder(2 + len(drawn))
        figure.add_artist(artist)

    def paths(self, points: Any, clip: bool = True, **look: Any) -> None:
        """Lines, or areas if they are filled: (paths, corners, 2) in inches, as one artist."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path as Outline

        corners = np.asarray(points, np.float64)
        if corners.size:
            codes = np.full(corners.shape[:2], Outline.LINETO)
            codes[:, 0] = Outline.MOVETO
            outline = Outline(corners.reshape(-1, 2), codes.ravel())
            self.add(PathPatch(outline, **{"fill": False, "capstyle": "butt"} | look), clip)

    def text(self, x: float, y: float, text: str, **look: Any) -> None:
        """A text at a point in inches."""
        from matplotlib.text import Text

        self.add(Text(x, y, text, parse_math=False, **look), clip=False)


def _draw_panel(
    frame: _Frame,
    *,
    x: bool = True,
    y: bool = True,
    title: Sequence[str] = (),
    labels_at: float = _LEFT - 0.13,
) -> None:
    """`x`, `y`: whether the axis is labelled; `labels_at`: how far to the left the y axis is."""
    panel, left, bottom = frame.panel, frame.left, frame.bottom
    right, top = left + frame.width, bottom + frame.height
    middle = (left + right) / 2
    for k, text in enumerate(reversed(title)):
        frame.text(middle, top + 0.08 + k * _LINE, text, ha="center", fontsize=8)
    across = [float(frame.x(v)) for v, _ in panel.x.ticks]
    up = [float(frame.y(v)) for v, _ in panel.y.ticks]
    grid = [((v, bottom), (v, top)) for v in across] + [((left, v), (right, v)) for v in up]
    frame.paths(grid, clip=False, edgecolor=GREY, alpha=0.25, linewidth=0.5)
    for mark in panel.marks:
        _draw_mark(frame, mark)
    corner = [((left, top), (left, bottom), (right, bottom))]
    frame.paths(corner, clip=False, edgecolor=INK, linewidth=0.7)
    if x:
        for v, (_, text) in zip(across, panel.x.ticks, strict=True):
            frame.text(v, bottom - 0.07, text, ha="center", va="top", fontsize=7)
        frame.text(middle, bottom - 0.2, panel.x.label, ha="center", va="top", fontsize=8)
    if y:
        for v, (_, text) in zip(up, panel.y.ticks, strict=True):
            frame.text(left - 0.05, v, text, ha="right", va="center_baseline", fontsize=7)
        look: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 90, "fontsize": 8}
        look["rotation_mode"] = "anchor"  # an SVG then says where its middle is
        frame.text(left - labels_at, (bottom + top) / 2, panel.y.label, **look)


def _draw_mark(frame: _Frame, mark: Mark) -> None:
    from matplotlib.lines import Line2D

    style = STYLES[mark.series]
    if isinstance(mark, Bars):
        x0, x1, y0, y1 = (
            frame.x(mark.left),
            frame.x(mark.right),
            *map(frame.y, (mark.low, mark.high)),
        )
        there = y1 > y0
        corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]])[..., there]
        frame.paths(corners.transpose(2, 0, 1), **_box(mark.series))
    elif isinstance(mark, Level):
        across = np.array([frame.left, frame.left + frame.width])
        level = [np.stack([across, np.full(2, frame.y(mark.y))], axis=1)]
        frame.paths(level, edgecolor=style.colour, linestyle=_dash(style), linewidth=1)
    elif isinstance(mark, Whiskers):
        x = frame.x(mark.x)
        ends = np.array([[x, frame.y(mark.low)], [x, frame.y(mark.high)]])
        frame.paths(ends.transpose(2, 0, 1), edgecolor=style.colour, linewidth=0.7)
    elif isinstance(mark, Band):
        x = frame.x(mark.x)
        y = np.concatenate([frame.y(mark.low), frame.y(mark.high)[::-1]])
        area = [np.stack([np.concatenate([x, x[::-1]]), y], axis=1)]
        frame.paths(area, fill=True, facecolor=style.colour, alpha=0.15, linewidth=0)
    else:
        size = 3.2 if len(mark.x) <= 60 else 2.2
        look = _line(mark.series, size, mark.line, mark.shape)
        line = Line2D(frame.x(mark.x), frame.y(mark.y), label=mark.series, **look)
        frame.add(line, clip=not style.marker)


def _dash(style: Style) -> Any:
    return (0, tuple(d * 0.8 for d in style.dash)) if style.dash else "-"


def _line(series: str, size: float, line: bool = True, shape: str = "") -> dict[str, Any]:
    style = STYLES[series]
    return {
        "color": style.colour,
        "linestyle": _dash(style) if line and style.joined else "none",
        "linewidth": 1.1,
        "marker": (STYLES[shape] if shape else style).marker or "none",
        "markersize": size,
        "markerfacecolor": style.colour if style.filled else PAPER,
        "markeredgewidth": 0.8,
    }


def _box(series: str) -> dict[str, Any]:
    style = STYLES[series]
    look: dict[str, Any] = {"hatch": _HATCH[style.hatch], "linewidth": 0.4, "fill": style.filled}
    if style.filled:
        return look | {"facecolor": style.colour, "edgecolor": PAPER}
    return look | {"edgecolor": style.colour}


def _sample(series: str, bars: bool) -> Any:
    """What a legend shows of a series."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 1, 1, **_box(series)) if bars else Line2D([], [], **_line(series, 3.6))
