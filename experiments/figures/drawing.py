"""Panels on Matplotlib's axes, laid out on one figure, and its files.

Nothing is laid out by a solver: sizes are in inches and the same for every panel. Matplotlib is
imported only when something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.experiments.figures.style import BOXES, LINES, settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WIDTH = 1.65
"""Inches: width of every plotted area."""
LEFT, RIGHT, BOTTOM, TOP = 0.55, 0.10, 0.42, 0.10
"""Inches around it, where axes are labelled."""
_TIGHT, _LINE = 0.2, 0.14  # inches: where labels are the neighbour's; a line of a title
_METADATA: dict[str, Any] = {
    ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    ".pdf": {"CreationDate": None},
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title, note : short; shown above, one below the other
    plot : puts marks, limits and labels on the axes
    said : the content in words and numbers, for who cannot see it
    aspect : height / width of the plotted area
    """

    title: str
    plot: Callable[[Axes], object]
    said: str
    aspect: float = 1.0
    note: str = ""


@dataclass(frozen=True)
class Sheet:
    """Panels that belong together, row by row, and what their series are called.

    Attributes
    ----------
    legend : series and what it is called
    """

    title: str
    columns: int
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()

    @cached_property
    def drawn(self) -> tuple[Figure, list[Text]]:
        """The sheet on white paper, drawn once for files and pages; see `draw`."""
        return draw(self)


def draw(sheet: Sheet, dark: bool = False) -> tuple[Figure, list[Text]]:
    """All panels with one legend below; and the labels that are not shown.

    These are labels of axes that a neighbour has, too.
    """
    from matplotlib.figure import Figure

    with settings(dark):
        figure = Figure()
        for k, panel in enumerate(sheet.panels):
            ax = figure.add_axes((0, 0, 1, 1), label=str(k))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_major_formatter("{x:g}")
            panel.plot(ax)
            _set_log_ticks(ax)
        return figure, _lay_out(figure, sheet)


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


def _lay_out(figure: Figure, sheet: Sheet) -> list[Text]:
    """Give everything its place; the labels that neighbours have, too, hidden."""
    panels = list(zip(figure.axes, sheet.panels, strict=True))
    rows = [panels[k : k + sheet.columns] for k in range(0, len(panels), sheet.columns)]
    same_x = [_equal("x", [*row, *below]) for row, below in pairwise(rows)] + [False]
    same_y = all(_equal("y", row) for row in rows)
    step = WIDTH + (_TIGHT if same_y else LEFT + RIGHT)
    inside = LEFT + (sheet.columns - 1) * step + WIDTH + RIGHT
    width = max(inside, 4.2)
    lines = [max(bool(p.title) + bool(p.note) for _, p in row) for row in rows]
    tall = [WIDTH * row[0][1].aspect for row in rows]
    under = [_TIGHT if same else BOTTOM for same in same_x]
    legend = _add_legend(figure, sheet, width)
    height = top = 0.3 + sum(tall) + sum(under) + TOP * len(rows) + _LINE * sum(lines) + legend
    figure.set_size_inches(width, height)
    figure.text(0.5, 1 - 0.08 / height, sheet.title, ha="center", va="top", fontsize=9)
    top -= 0.3
    inner: list[Text] = []
    for r, row in enumerate(rows):
        top -= TOP + _LINE * lines[r] + tall[r]
        for k, (ax, panel) in enumerate(row):
            left = (width - inside) / 2 + LEFT + k * step
            ax.set_position((left / width, top / height, WIDTH / width, tall[r] / height))
            words = "\n".join(text for text in (panel.title, panel.note) if text)
            middle, above = (left + WIDTH / 2) / width, (top + tall[r] + 0.07) / height
            figure.text(middle, above, words, ha="center", va="bottom")
            across, up = ([axis.label, *axis.get_ticklabels()] for axis in (ax.xaxis, ax.yaxis))
            inner += across if same_x[r] and k < len(rows[r + 1]) else []
            inner += up if same_y and k else []
        top -= under[r]
    for text in inner:
        text.set_visible(False)
    return inner


def _equal(axis: str, panels: Sequence[tuple[Axes, Panel]]) -> bool:
    """Whether all have the same limits and label of the x or y axis."""
    found = (ax.xaxis if axis == "x" else ax.yaxis for ax, _ in panels)
    return len({(a.get_label_text(), *a.get_view_interval()) for a in found}) == 1


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
    """What a legend shows of a series."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return Patch(**BOXES[series]) if series in BOXES else Line2D([], [], **LINES[series])


def svg_of(figure: Figure) -> str:
    """The figure as an SVG, text as text."""
    text = io.BytesIO()
    save_figure(figure, text, ".svg")
    return text.getvalue().decode()


def save_figure(
    figure: Figure, to: Path | io.BytesIO, suffix: str = "", *, dark: bool = False
) -> None:
    """Write a PNG at 300 dots per inch, or an SVG or PDF with text as text; no date in it.

    Parameters
    ----------
    to : a path, or a stream for a file of the kind `suffix`
    dark : as the figure was drawn
    """
    suffix = suffix or Path(str(to)).suffix
    options: dict[str, Any] = {"dpi": 300, "metadata": _METADATA.get(suffix)}
    if suffix == ".png":
        options["pil_kwargs"] = {"compress_level": 1}
    with settings(dark):
        figure.savefig(to, format=suffix[1:], **options)


def save_sheets(
    sheets: Mapping[str, Sheet], folder: Path, suffixes: Sequence[str] = (".png", ".svg")
) -> list[str]:
    """Write each sheet as NAME.png and NAME.svg into the folder; the names written."""
    written = [f"{name}{suffix}" for name in sheets for suffix in suffixes]
    for file in written:
        save_figure(sheets[file.rpartition(".")[0]].drawn[0], folder / file)
    return written


# -- marks on axes -------------------------------------------------------------------------------


def bars(ax: Axes, series: str, left: Any, right: Any, low: Any, high: Any) -> None:
    """Upright boxes as one artist; arrays of one length; those without height are left out."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    corners = np.array([[left, low], [right, low], [right, high], [left, high]])
    there = np.asarray(high) > np.asarray(low)
    outline = Outline.make_compound_path_from_polys(corners.transpose(2, 0, 1)[there])
    ax.add_patch(PathPatch(outline, label=series, **BOXES[series]))


def curve(ax: Axes, series: str, x: Any, y: Any, low: Any = None, high: Any = None) -> None:
    """A line through points, with whiskers from `low` to `high` where these are given."""
    ax.plot(x, y, label=series, **LINES[series])
    if low is not None:
        whiskers(ax, series, x, low, high)


def whiskers(ax: Axes, series: str, x: Any, low: Any, high: Any) -> None:
    """Upright intervals."""
    ax.vlines(x, low, high, colors=LINES[series]["color"], linewidths=0.7, label=series)


def level(ax: Axes, series: str, y: float) -> None:
    """A horizontal line across the panel."""
    ax.axhline(y, label=series, **LINES[series])
