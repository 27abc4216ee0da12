"""Panels on Matplotlib's axes, laid out on one figure; its files; colours and styles of series.

Colours are "C0", "C1" and so on: places in the colour cycle, which `settings` fills for white
paper or for a dark screen.

Nothing is laid out by a solver: sizes are in inches and the same for every panel of a figure.
Matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


HUES = {
    "blue": ("#0072b2", "#4aa8e0"),
    "orange": ("#e69f00", "#e8a200"),
    "purple": ("#cc79a7", "#e08fbd"),
    "green": ("#005f45", "#8be8c4"),
    "red": ("#d55e00", "#f07f2e"),
    "sky": ("#3a8fc4", "#7cc6f2"),
    "olive": ("#8a7a00", "#f0e442"),
    "ink": ("#1b1f24", "#e8eaed"),
    "grey": ("#6b7280", "#9aa3af"),
    "paper": ("#ffffff", "#1d2128"),
}
"""Name -> on white paper (3:1 at least) and on a dark screen; Okabe and Ito's hues.

No colour stands twice among those for paper: a page finds them and puts its own in their place.
"""

FONT_SIZE = 8
"""Font size of `fedcal.mplstyle`."""

_INKED = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")


def settings(dark: bool = False) -> AbstractContextManager[None]:
    """Matplotlib's settings while a figure is drawn and saved; `dark` = for a dark screen."""
    from matplotlib import rc_context, rc_params_from_file

    style = Path(__file__).with_name("fedcal.mplstyle")
    hues = {name: pair[dark] for name, pair in HUES.items()}
    coloured: Any = {
        **dict.fromkeys(_INKED, hues["ink"]),
        "axes.prop_cycle": f"cycler(color={list(hues.values())})",
        "figure.facecolor": hues["paper"],
        "grid.color": hues["grey"],
    }
    return rc_context({**rc_params_from_file(style, use_default_template=False), **coloured})


def colour(hue: str) -> str:
    """One of `HUES` as a place in the colour cycle."""
    return f"C{list(HUES).index(hue)}"


def _line(
    hue: str, dash: Sequence[float] = (), marker: str = "none", filled: bool = True
) -> dict[str, Any]:
    return {
        "color": colour(hue),
        "linestyle": (0, tuple(0.8 * d for d in dash)) if dash else "-",
        "marker": marker,
        "markerfacecolor": colour(hue if filled else "paper"),
    }


_EDGE = {"edgecolor": colour("paper"), "linewidth": 0.4}
BOXES: dict[str, dict[str, Any]] = {
    "correct": {"facecolor": colour("blue"), **_EDGE},
    "over": {"facecolor": colour("orange"), **_EDGE, "hatch": "////"},
    "under": {"fill": False, **_EDGE, "edgecolor": colour("purple"), "hatch": "xxxx"},
}
"""Series -> look of its bars."""

_HUES = ("blue", "red", "green", "ink", "purple", "olive", "sky", "orange")
_DASHES = ((), (6, 2), (2, 2), (7, 2, 2, 2), (9, 3), (4, 2, 1, 2), (3, 3), (1, 2))
_MARKERS = "os^DvPX*os^DvPX*<>phdH8."
_BASELINES = {"grey": (2, 2), "ink": (8, 3), "green": (1, 2), "purple": (6, 2, 1, 2)}

METHOD_STYLES = [f"m{k}" for k in range(len(_MARKERS))]
"""Styles of a comparison's methods: all hues with filled, with open and with other markers."""

BASELINE_STYLES = [f"b{k}" for k in range(len(_BASELINES))]

LINES = {
    "perfect": _line("grey", dash=(5, 3)),
    "whisker": _line("ink"),
    "before": _line("red", dash=(4, 2), marker="o", filled=False),
    "after": _line("blue", marker="s"),
    "reference": _line("grey", dash=(2, 2)),
}
"""Series -> look of its line. Colours differ for the common colour blindnesses, too; looks
besides.
"""

for k, series in enumerate(METHOD_STYLES):
    again, j = divmod(k, len(_HUES))
    LINES[series] = _line(_HUES[j], _DASHES[(j + 3 * again) % 8], _MARKERS[k], filled=again != 1)
for series, (hue, dash) in zip(BASELINE_STYLES, _BASELINES.items(), strict=True):
    LINES[series] = _line(hue, dash)


def look(series: str) -> dict[str, Any]:
    """Return the look of a line in the colours of the settings at this moment.

    An artist would look its place in the cycle up when it is drawn: under the settings of others.
    """
    from matplotlib.colors import to_hex

    fixed = {key: to_hex(LINES[series][key]) for key in ("color", "markerfacecolor")}
    return {**LINES[series], **fixed}


WIDTH = 1.65
"""Inches: width of every plotted area."""
LEFT, RIGHT, BOTTOM, TOP = 0.55, 0.10, 0.42, 0.10
"""Inches around it, where axes are labelled."""
_LINE, _LETTER = 0.14, 0.07  # inches: a line of a title, the breadth of a letter
_NO_METADATA: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))

FEW = 30
"""Points up to which a line has markers and whiskers; with more it is plain, over an area."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title, note
        short; shown above, one below the other
    plot
        puts marks, limits and labels on the axes
    description
        the content in words and numbers, for who cannot see it
    aspect
        height / width of the plotted area
    """

    title: str
    plot: Callable[[Axes], object]
    description: str
    aspect: float = 1.0
    note: str = ""


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
    left
        inches beside a plotted area, for the labels of the y axis
    width
        inches of every plotted area
    """

    title: str
    columns: int
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()
    name: str = ""
    note: str = ""
    left: float = LEFT
    width: float = WIDTH

    @property
    def cell(self) -> float:
        """Inches of a panel's width in all."""
        return self.left + self.width + RIGHT

    @cached_property
    def figure(self) -> Figure:
        """All panels on white paper, drawn once for files and pages."""
        return draw(self)

    @cached_property
    def svg(self) -> str:
        """The figure as an SVG with text as text and without a date."""
        text = io.BytesIO()
        with settings():
            self.figure.savefig(text, format="svg", metadata=_NO_METADATA)
        return text.getvalue().decode()


def draw(sheet: Sheet, dark: bool = False, on: Figure | None = None) -> Figure:
    """All panels with one legend below; on an empty figure as it will look under any settings."""
    from matplotlib.figure import Figure

    panels, columns = sheet.panels, sheet.columns
    rows = [panels[k : k + columns] for k in range(0, len(panels), columns)]
    tall = [sheet.width * row[0].aspect for row in rows]
    above = [_LINE * max(bool(p.title) + bool(p.note) for p in row) for row in rows]
    inside = sheet.cell * min(columns, len(panels))
    width = max(inside, 4.2 if sheet.width == WIDTH else 0)
    title = fill(sheet.title, int(width / _LETTER))
    longest = max((len(text) for _, text in sheet.legend), default=0)
    across = max(1, min(len(sheet.legend), int(width / (0.55 + 0.066 * longest))))
    below = 0.1 + 0.18 * -(-len(sheet.legend) // across)
    head = 0.16 + _LINE * len(title.splitlines())
    height = head + sum(tall) + sum(above) + (TOP + BOTTOM) * len(rows) + below
    with settings(dark):
        figure = on or Figure()
        figure.set_facecolor(HUES["paper"][dark])
        figure.set_size_inches(width, height)
        figure.text(0.5, 1 - 0.08 / height, title, ha="center", va="top", fontsize=9)
        figure.legend(*_legend(sheet), loc="lower center", ncols=across)
        bottom = height - head
        for row, high, words in zip(rows, tall, above, strict=True):
            bottom -= TOP + words + high
            for k, panel in enumerate(row):
                left = (width - inside) / 2 + k * sheet.cell + sheet.left
                place = (left / width, bottom / height, sheet.width / width, high / height)
                ax = figure.add_axes(place)
                _plot(panel, ax)
                text, where = "\n".join(filter(None, (panel.title, panel.note))), 1 + 0.07 / high
                figure.text(0.5, where, text, transform=ax.transAxes, ha="center", va="bottom")
            bottom -= BOTTOM
        if on is not None:
            figure.draw_without_rendering()  # ticks are made
    return figure


def _plot(panel: Panel, ax: Axes) -> None:
    """Logarithmic axes have ticks at powers of ten, or between them where these are few."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
    panel.plot(ax)
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            decades = LogLocator(subs=[1] if high > 200 * low else [1, 2, 5])
            axis.set_major_locator(decades if high > 5 * low else MaxNLocator(5))
            axis.set_major_formatter(EngFormatter(sep="") if low > 1 else "{x:g}")
            ax.minorticks_off()


def _legend(sheet: Sheet) -> tuple[list[Any], list[str]]:
    """Return a sample of each series, and what it is called."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    samples = [
        Patch(**BOXES[series]) if series in BOXES else Line2D([], [], **look(series))
        for series, _ in sheet.legend
    ]
    return samples, [text for _, text in sheet.legend]


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
    """Draw a line through points, with intervals from `low` to `high` if these are given."""
    many = len(x) > FEW
    ax.plot(x, y, label=series, **look(series) | ({"marker": "none"} if many else {}))
    if low is not None and many:
        ax.fill_between(x, low, high, color=look(series)["color"], alpha=0.2, linewidth=0)
    elif low is not None:
        whiskers(ax, series, x, low, high)


def whiskers(ax: Axes, series: str, x: Any, low: Any, high: Any) -> None:
    """Draw vertical intervals."""
    ax.vlines(x, low, high, colors=look(series)["color"], linewidths=0.7, label=series)


def plotter(lines: Iterable[Any], note: str = "", **axes: Any) -> Callable[[Axes], object]:
    """Return what plots lines: series, x, y and, where there are intervals, low and high ends.

    Parameters
    ----------
    note
        in the upper right corner
    **axes
        labels, limits and ticks, as `Axes.set` takes them
    """

    def plot(ax: Axes) -> None:
        ax.set(**axes)
        if note:
            ax.text(0.98, 0.97, note, transform=ax.transAxes, ha="right", va="top")
        for line in lines:
            curve(ax, *line)

    return plot


# -- pages ---------------------------------------------------------------------------------------

_CHANGES = (
    (r"\s+", " "),
    (r' xmlns(:\w+)?="[^"]*"|xlink:(?=href)|font[\w-]*: [^;"]*(; )?', ""),
    (r"(\.\d\d)\d+", r"\1"),
    (r' fill="([^"]*)"', r' style="fill: \1"'),  # an attribute cannot hold a variable
)
"""Pattern -> replacement, in each tag of an SVG."""


def svgs(sheet: Sheet, name: str, card: bool = False) -> tuple[list[str], list[str]]:
    """Every panel of a sheet without its title, with all labels, and the samples of its legend.

    They belong together: what several of them need is in the first panel.

    Parameters
    ----------
    sheet
        what to draw
    name
        prefix of the ids in it, unique on the page
    card
        it has no style sheet: text inherits its colour, series have mid tones
    """
    root = _own(sheet.svg, name, card)
    width, height = sheet.figure.get_size_inches()
    panels, keys, sample = [], [], list[ET.Element]()
    for k, (panel, ax) in enumerate(zip(sheet.panels, sheet.figure.axes, strict=True), 1):
        box = ax.get_position()
        corner = (box.x0 * width - sheet.left, (1 - box.y1) * height - TOP)
        size = (sheet.cell, TOP + sheet.width * panel.aspect + BOTTOM)
        shared = root.findall("defs") if k == 1 else []
        content = [*shared, *root.findall(f".//g[@id='{name}-axes_{k}']")]
        panels.append(
            _svg((*corner, *size), content, {"role": "img", "aria-label": panel.description})
        )
    for element in root.findall(f".//g[@id='{name}-legend_1']/g"):
        if (text := element.find("text")) is None:
            sample.append(element)
            continue
        x, y = (float(text.get(at, 0)) / 72 for at in "xy")  # the sample stands beside it
        keys.append(_svg((x - 0.4, y - 0.11, 0.34, 0.14), sample, {"width": "34", "height": "14"}))
        sample = []
    return panels, keys


def _svg(box: Iterable[float], content: Iterable[ET.Element], facts: Mapping[str, str]) -> str:
    """Return an element of a page that shows a box (in inches) of a figure; a key is no image."""
    known = {"class": "panel"} if "role" in facts else {"class": "key", "aria-hidden": "true"}
    svg = ET.Element("svg", {**known, "viewBox": " ".join(f"{72 * v:.2f}" for v in box)})
    svg.attrib |= {**facts, "font-size": str(FONT_SIZE), "style": "stroke-linejoin:round"}
    svg.extend(content)
    return ET.tostring(svg, "unicode")


def _own(svg: str, name: str, card: bool) -> ET.Element:
    """Matplotlib's SVG with ids and colours of the page, without fonts; its words as they are."""
    colours = {light: light if card else f"var(--{hue})" for hue, (light, _) in HUES.items()}
    if card:
        colours[HUES["ink"][0]] = "currentColor"

    def tag(match: re.Match[str]) -> str:
        text = re.sub(r"#(\w+)", lambda m: colours.get(m[0], f"#{name}-{m[1]}"), match[0])
        for pattern, instead in _CHANGES:
            text = re.sub(pattern, instead, text)
        return text.replace(' id="', f' id="{name}-')

    return ET.fromstring(re.sub(r"<[^<>]*>", tag, re.sub(r"(?s)<style.*?</style>", "", svg)))
