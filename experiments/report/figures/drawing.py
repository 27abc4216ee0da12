"""Panels on Matplotlib's axes, laid out on one figure, and its files.

Nothing is laid out by a solver: sizes are in inches and the same for every panel. Matplotlib is
imported only when something is drawn.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.experiments.report.figures.style import BOXES, FONT_SIZE, HUES, LINES, settings

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 1.65
"""Inches: width of every plotted area."""
LEFT, RIGHT, BOTTOM, TOP = 0.55, 0.10, 0.42, 0.10
"""Inches around it, where axes are labelled."""
_LINE, _LETTER = 0.14, 0.07  # inches: a line of a title, the breadth of a letter
_NO_METADATA: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title, note
        short; shown above, one below the other
    plot
        puts marks, limits and labels on the axes
    said
        the content in words and numbers, for who cannot see it
    aspect
        height / width of the plotted area
    left
        inches beside it, for the labels of the y axis
    """

    title: str
    plot: Callable[[Axes], object]
    said: str
    aspect: float = 1.0
    note: str = ""
    left: float = LEFT


@dataclass(frozen=True)
class Sheet:
    """Panels that belong together, row by row, and what their series are called.

    Attributes
    ----------
    legend
        series and what it is called
    name
        of its files
    note
        a sentence below it on a page
    width
        inches of every plotted area
    """

    title: str
    columns: int
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()
    name: str = ""
    note: str = ""
    width: float = WIDTH

    def cell(self, panel: Panel) -> float:
        """Return inches of a panel's width in all."""
        return panel.left + self.width + RIGHT

    @cached_property
    def figure(self) -> Figure:
        """All panels on white paper, drawn once for files and pages."""
        return draw(self)

    @cached_property
    def svg(self) -> str:
        """The figure as an SVG, text as text."""
        return svg_of(self.figure)


def draw(sheet: Sheet, dark: bool = False, on: Figure | None = None) -> Figure:
    """All panels with one legend below; on an empty figure as it will look under any settings."""
    from matplotlib.figure import Figure

    rows = [sheet.panels[k : k + sheet.columns] for k in range(0, len(sheet.panels), sheet.columns)]
    inside = sum(map(sheet.cell, rows[0]))
    width = max(inside, 4.2 if sheet.width == WIDTH else 0)
    lines = [max(bool(p.title) + bool(p.note) for p in row) for row in rows]
    tall = [sheet.width * row[0].aspect for row in rows]
    with settings(dark):
        figure = on or Figure()
        figure.set_facecolor(HUES["paper"][dark])
        title = fill(sheet.title, int(width / _LETTER))
        head = 0.3 + _LINE * title.count("\n")
        height = head + sum(tall) + (TOP + BOTTOM) * len(rows) + _LINE * sum(lines)
        height = top = height + _add_legend(figure, sheet, width)
        figure.set_size_inches(width, height)
        figure.text(0.5, 1 - 0.08 / height, title, ha="center", va="top", fontsize=9)
        top -= head
        for r, row in enumerate(rows):
            top -= TOP + _LINE * lines[r] + tall[r]
            for k, panel in enumerate(row):
                left = (width - inside) / 2 + sum(map(sheet.cell, row[:k])) + panel.left
                place = (left / width, top / height, sheet.width / width, tall[r] / height)
                ax = figure.add_axes(place, label=f"{r}, {k}")
                ax.xaxis.set_major_formatter("{x:g}")
                ax.yaxis.set_major_formatter("{x:g}")
                panel.plot(ax)
                _set_log_ticks(ax)
                words = "\n".join(text for text in (panel.title, panel.note) if text)
                middle, above = (left + sheet.width / 2) / width, (top + tall[r] + 0.07) / height
                figure.text(middle, above, words, ha="center", va="bottom")
            top -= BOTTOM
        if on is not None:
            _keep_colours(figure)
            figure.draw_without_rendering()  # ticks are made
    return figure


def draw_on(sheet: Sheet, axes: Sequence[Axes]) -> None:
    """Draw the panels on the caller's own axes, as many; titles and the legend stand on these."""
    theirs = {one for ax in axes for one in ax.findobj()}
    with settings():
        for panel, ax in zip(sheet.panels, axes, strict=True):
            panel.plot(ax)
            _set_log_ticks(ax)
            ax.set_title(" ".join(filter(None, (panel.title or sheet.title, panel.note))))
        series, texts = zip(*sheet.legend, strict=True)
        axes[-1].legend(list(map(sample, series)), texts)
        for ax in axes:
            _keep_colours(ax, theirs)


def _keep_colours(drawn: Figure | Axes, but: Collection[Artist] = ()) -> None:
    """Fix the colours of lines, which otherwise are looked up later in the cycle of `settings`."""
    from matplotlib.colors import to_rgba
    from matplotlib.lines import Line2D

    for line in drawn.findobj(Line2D):
        if line not in but:
            line.set(color=to_rgba(line.get_color()))
            line.set(markerfacecolor=to_rgba(line.get_markerfacecolor()))
            line.set(markeredgecolor=to_rgba(line.get_markeredgecolor()))


def _set_log_ticks(ax: Axes) -> None:
    """On logarithmic axes ticks at powers of ten, or between them where these are few."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            decades = LogLocator(subs=[1] if high > 200 * low else [1, 2, 5])
            axis.set_major_locator(decades if high > 5 * low else MaxNLocator(5))
            axis.set_major_formatter(EngFormatter(sep="") if low > 1 else "{x:g}")
            ax.minorticks_off()


def _add_legend(figure: Figure, sheet: Sheet, width: float) -> float:
    """Below all panels, in as many lines as its entries need; its height in inches."""
    longest = max((len(text) for _, text in sheet.legend), default=0)
    per_line = max(1, min(len(sheet.legend), int(width / (0.55 + 0.066 * longest))))
    figure.legend(
        [sample(series) for series, _ in sheet.legend],
        [text for _, text in sheet.legend],
        loc="lower center",
        ncols=per_line,
        frameon=False,
        handlelength=2.6,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    return 0.1 + 0.18 * -(-len(sheet.legend) // per_line)


def sample(series: str) -> Any:
    """Return a legend's handle for a series."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return Patch(**BOXES[series]) if series in BOXES else Line2D([], [], **LINES[series])


def svg_of(figure: Figure) -> str:
    """Return the figure as an SVG with text as text and without a date."""
    text = io.BytesIO()
    with settings():
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    return text.getvalue().decode()


def save_figure(figure: Figure, path: Path, *, dark: bool = False) -> None:
    """Write a PNG at 300 dots per inch, or a PDF with text as text; no date in it.

    Parameters
    ----------
    dark
        as the figure was drawn
    """
    options: dict[str, Any] = {"metadata": {"CreationDate": None}}
    if path.suffix == ".png":
        options = {"dpi": 300, "pil_kwargs": {"compress_level": 1}}
    with settings(dark):
        figure.savefig(path, **options)


def save_sheets(
    sheets: Mapping[str, Sheet], folder: Path, suffixes: Sequence[str] = (".png", ".svg")
) -> list[str]:
    """Write each sheet as NAME.png and NAME.svg into the folder; the names written."""
    for name, sheet in sheets.items():
        for suffix in suffixes:
            path = folder / f"{name}{suffix}"
            if suffix == ".svg":
                path.write_text(sheet.svg, "utf-8")
            else:
                save_figure(sheet.figure, path)
    return [f"{name}{suffix}" for name in sheets for suffix in suffixes]


# -- marks on axes -------------------------------------------------------------------------------


def bars(ax: Axes, series: str, left: Any, right: Any, low: Any, high: Any) -> None:
    """Upright boxes, arrays of one length, as one artist; those without height are left out."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    corners = np.array([[left, low], [right, low], [right, high], [left, high]])
    outline = Outline.make_compound_path_from_polys(corners.transpose(2, 0, 1)[high > low])
    ax.add_patch(PathPatch(outline, label=series, **BOXES[series]))


def curve(ax: Axes, series: str, x: Any, y: Any, low: Any = None, high: Any = None) -> None:
    """Draw a line through points, with whiskers from `low` to `high` if these are given."""
    ax.plot(x, y, label=series, **LINES[series])
    if low is not None:
        whiskers(ax, series, x, low, high)


def whiskers(ax: Axes, series: str, x: Any, low: Any, high: Any) -> None:
    """Draw vertical intervals."""
    ax.vlines(x, low, high, colors=LINES[series]["color"], linewidths=0.7, label=series)


def level(ax: Axes, series: str, y: float) -> None:
    """Draw a horizontal line across the panel."""
    ax.axhline(y, label=series, **LINES[series])


Palette = Callable[[str], str]
"""One of `HUES` -> a CSS colour."""

_KEY = (0.47, 0.19)  # inches: size of a legend's sample
_CHANGES = (
    (r"\s+", " "),
    (r' xmlns(:\w+)?="[^"]*"|xlink:(?=href)|font[\w-]*: [^;"]*(; )?', ""),
    (r"(\.\d\d)\d+", r"\1"),
    (r' fill="([^"]*)"', r' style="fill: \1"'),  # an attribute cannot hold a variable
)
"""What is changed in each tag."""


def variable(name: str) -> str:
    """Return a CSS custom property of the report's palette."""
    return f"var(--{name})"


def fixed(name: str) -> str:
    """Return a colour for use without a style sheet: text inherits, series have mid tones."""
    return "currentColor" if name == "ink" else HUES[name][0]


def panel_svgs(sheet: Sheet, name: str, palette: Palette = variable) -> list[str]:
    """Every panel of a sheet, without its title, with all labels of its axes.

    They belong together: what several of them need is in the first.

    Parameters
    ----------
    sheet
        what to draw
    name
        prefix of the ids in it, unique on the page
    palette
        where colours come from
    """
    root = _own(sheet.svg, name, palette)
    width, height = sheet.figure.get_size_inches()
    svgs = []
    for k, (panel, ax) in enumerate(zip(sheet.panels, sheet.figure.axes, strict=True), 1):
        box = ax.get_position()
        corner = (box.x0 * width - panel.left, (1 - box.y1) * height - TOP)
        size = (sheet.cell(panel), TOP + sheet.width * panel.aspect + BOTTOM)
        look = {"role": "img", "aria-label": panel.said}
        shared = root.findall("defs") if k == 1 else []
        groups = root.findall(f".//g[@id='{name}-axes_{k}']")
        svgs.append(_svg("panel", (*corner, *size), look, [*shared, *groups]))
    return svgs


def key_svg(series: str, name: str, palette: Palette = variable) -> str:
    """Return the sample of a series for a legend."""
    from matplotlib.figure import Figure

    look: dict[str, Any] = {"loc": "center", "handlelength": 3.6, "handleheight": 1.3}
    with settings():
        figure = Figure(figsize=_KEY, facecolor="none")
        figure.legend([sample(series)], [""], frameon=False, markerscale=1.7, **look)
    root = _own(svg_of(figure), name, palette)
    size = {"width": "34", "height": "14", "aria-hidden": "true"}
    return _svg("key", (0, 0, *_KEY), size, root)


def _svg(
    css: str, box: Iterable[float], look: Mapping[str, str], content: Iterable[ET.Element]
) -> str:
    """Return an element of a page that shows a box (in inches) of a figure."""
    svg = ET.Element("svg", {"class": css, "viewBox": " ".join(f"{72 * v:.2f}" for v in box)})
    svg.attrib |= {**look, "font-size": str(FONT_SIZE), "style": "stroke-linejoin:round"}
    svg.extend(content)
    return ET.tostring(svg, "unicode")


def _own(svg: str, name: str, palette: Palette) -> ET.Element:
    """Matplotlib's SVG with ids and colours of the page, without fonts; its words as they are."""
    colours = {light: palette(hue) for hue, (light, _) in HUES.items()}

    def tag(match: re.Match[str]) -> str:
        text = re.sub(r"#(\w+)", lambda m: colours.get(m[0], f"#{name}-{m[1]}"), match[0])
        for pattern, instead in _CHANGES:
            text = re.sub(pattern, instead, text)
        return text.replace(' id="', f' id="{name}-')

    return ET.fromstring(re.sub(r"<[^<>]*>", tag, re.sub(r"(?s)<style.*?</style>", "", svg)))
