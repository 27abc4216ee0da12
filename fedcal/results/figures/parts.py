"""Parts of a page that are data, drawn: curves and forest plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.core import pages
from fedcal.results.figures.drawing import FEW, LEFT, WIDTH, Panel, Sheet, plotter
from fedcal.results.figures.style import BASELINE_STYLES, METHOD_STYLES, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOREST_LEFT = 1.45
"""Inches beside a forest plot for its labels."""

LONGEST = 22
"""Letters of a label of a forest plot; a longer one is cut. What it says in words has all."""

_LINE = 0.15  # inches of a forest plot for each of its lines


def drawn(part: Any, about: str = "") -> Any:
    """Return a curve or forest plot as a sheet of one panel; every other part as it is.

    Parameters
    ----------
    about
        what the title on the sheet begins with; "" = the part's own alone
    """
    if not isinstance(part, (pages.Curve, pages.Intervals)):
        return part
    panel = _forest(part) if isinstance(part, pages.Intervals) else _curve(part)
    series = zip(METHOD_STYLES, part.series, strict=False)
    references = zip(BASELINE_STYLES, part.references, strict=False)
    title = f"{about}: {part.title}" if about else part.title
    left = FOREST_LEFT if isinstance(part, pages.Intervals) else LEFT
    return Sheet(title, 1, (panel,), (*series, *references), note=part.note, left=left)


def _curve(shown: pages.Curve) -> Panel:
    lines = (*shown.series.values(), *shown.references.values(), *shown.bands.values())
    shares = all(0 <= n <= 1 for line in lines for point in line for n in point)
    axes: dict[str, Any] = {"xlabel": shown.x, "ylabel": shown.y}
    if shares:  # all of the square, also where there are no points
        axes |= {"xlim": (0, 1), "ylim": (0, 1), "xticks": (0, 0.5, 1), "yticks": (0, 0.5, 1)}
    references = zip(BASELINE_STYLES, shown.references.values(), strict=False)
    plotted: list[Any] = [(style, *np.transpose(line)) for style, line in references]
    for style, (name, line) in zip(METHOD_STYLES, shown.series.items(), strict=False):
        ends = np.transpose(shown.bands[name]) if name in shown.bands else ()
        plotted.append((style, *np.transpose(line), *ends))
    words = "; ".join(
        f"{name}: " + ", ".join(f"{x:.4g} {y:.4g}" for x, y in _thinned(line))
        for name, line in shown.series.items()
    )
    text = f"{shown.y} against {shown.x}{', with intervals' if shown.bands else ''}. {words}."
    return Panel("", plotter(plotted, **axes), text, aspect=1.0 if shares else 0.75)


def _thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `FEW` of the points, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(line) - 1, min(FEW, len(line))).round().astype(int))
    return [line[k] for k in chosen]


def _forest(shown: pages.Intervals) -> Panel:
    labels, many = shown.labels, len(shown.series)

    def plot(ax: Axes) -> None:
        ax.set(xlabel=shown.x, ylim=(len(labels) - 0.5, -0.5))
        cut = [text if len(text) <= LONGEST else text[: LONGEST - 1] + "…" for text in labels]
        ax.set_yticks(range(len(labels)), cut)
        ax.grid(visible=False, axis="y")
        for style, x in zip(BASELINE_STYLES, shown.references.values(), strict=False):
            ax.axvline(x, label=style, **look(style))
        for k, (style, lines) in enumerate(zip(METHOD_STYLES, shown.series.values(), strict=False)):
            names, value, low, high = zip(*lines, strict=True)
            y = np.array([labels.index(name) for name in names]) + (k + 0.5) / (2 * many) - 0.25
            mine = look(style) | {"linestyle": "none"}
            ax.hlines(y, low, high, colors=mine["color"], linewidths=0.9, label=style)
            ax.plot(value, y, label=style, **mine)

    words = "; ".join(
        f"{name}: " + ", ".join(f"{label} {v:.4g} ({a:.4g} to {b:.4g})" for label, v, a, b in lines)
        for name, lines in shown.series.items()
    )
    lines = len(labels) * max(1.0, 0.6 * many)
    return Panel("", plot, f"{shown.x}, with intervals. {words}.", (0.1 + _LINE * lines) / WIDTH)
