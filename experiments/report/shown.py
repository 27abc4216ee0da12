"""What every result gives a notebook and a paper: a data frame, and its figures on axes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.core import checks, errors, optional, pages
from fedcal.experiments.report.figures.drawing import WIDTH, Panel, Sheet, curve, draw, draw_on
from fedcal.experiments.report.figures.style import BASELINE_STYLES, LINES, METHOD_STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 30
"""Points up to which a series has markers and whiskers; with more, a plain line and an area."""

FOREST_LEFT = 1.45
"""Inches beside a forest plot for its labels."""

LONGEST = 22
"""Letters of a label of a forest plot; a longer one is cut. What it says in words has all."""

_LINE = 0.15  # inches of a forest plot for each of its lines


def part_sheet(shown: pages.Curve | pages.Intervals, title: str) -> Sheet:
    """Draw a part as one panel, its series and references in the legend."""
    panel = _curve(shown) if isinstance(shown, pages.Curve) else _forest(shown)
    series = zip(METHOD_STYLES, shown.series, strict=False)
    references = zip(BASELINE_STYLES, shown.references, strict=False)
    return Sheet(title, 1, (panel,), (*series, *references))


def _curve(shown: pages.Curve) -> Panel:
    lines = (*shown.series.values(), *shown.references.values(), *shown.bands.values())
    shares = all(0 <= n <= 1 for line in lines for point in line for n in point)

    def plot(ax: Axes) -> None:
        ax.set(xlabel=shown.x, ylabel=shown.y)
        for style, line in zip(BASELINE_STYLES, shown.references.values(), strict=False):
            curve(ax, style, *zip(*line, strict=True))
        for style, (name, line) in zip(METHOD_STYLES, shown.series.items(), strict=False):
            x, y = zip(*line, strict=True)
            low, high = np.transpose(shown.bands[name]) if name in shown.bands else (None, None)
            if len(line) <= FEW:
                curve(ax, style, x, y, low, high)
                continue
            ax.plot(x, y, label=style, **{**LINES[style], "marker": "none"})
            if low is not None and high is not None:
                colour = LINES[style]["color"]
                ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        if shares:  # all of the square, also where there are no points
            ax.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))

    words = "; ".join(
        f"{name}: " + ", ".join(f"{x:.4g} {y:.4g}" for x, y in _thinned(line))
        for name, line in shown.series.items()
    )
    text = f"{shown.y} against {shown.x}{', with intervals' if shown.bands else ''}. {words}."
    return Panel("", plot, text, aspect=1.0 if shares else 0.75)


def _thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `FEW` of the points, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(line) - 1, min(FEW, len(line))).round().astype(int))
    return [line[k] for k in chosen]


def _forest(shown: pages.Intervals) -> Panel:
    labels = shown.labels
    place = {label: k for k, label in enumerate(labels)}
    many = len(shown.series)

    def plot(ax: Axes) -> None:
        ax.set(xlabel=shown.x, ylim=(len(labels) - 0.5, -0.5))
        ax.set_yticks(range(len(labels)), [_cut(label) for label in labels])
        ax.grid(visible=False, axis="y")
        for style, x in zip(BASELINE_STYLES, shown.references.values(), strict=False):
            ax.axvline(x, label=style, **LINES[style])
        for k, (style, lines) in enumerate(zip(METHOD_STYLES, shown.series.values(), strict=False)):
            shift = 0.5 * ((k + 0.5) / many - 0.5)
            y = [place[label] + shift for label, *_ in lines]
            _, value, low, high = zip(*lines, strict=True)
            ax.hlines(y, low, high, colors=LINES[style]["color"], linewidths=0.9, label=style)
            ax.plot(value, y, label=style, **{**LINES[style], "linestyle": "none"})

    words = "; ".join(
        f"{name}: " + ", ".join(f"{label} {v:.4g} ({a:.4g} to {b:.4g})" for label, v, a, b in lines)
        for name, lines in shown.series.items()
    )
    lines = len(labels) * max(1.0, 0.6 * many)
    aspect = (0.1 + _LINE * lines) / WIDTH
    return Panel("", plot, f"{shown.x}, with intervals. {words}.", aspect, left=FOREST_LEFT)


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"


if TYPE_CHECKING:
    from pandas import DataFrame


class Displayable(ABC):
    """A base of results: each says its lines and its figures."""

    @abstractmethod
    def _lines(self) -> Sequence[Mapping[str, Any]]:
        """Return the numbers of the result, by column."""

    def _figures(self) -> Mapping[str, Sheet]:
        """Return figures by name, the main one first."""
        return {}

    def to_frame(self) -> DataFrame:
        """Return the numbers as a pandas DataFrame; InputError without pandas or numbers."""
        pandas = optional.need("pandas", "frames", "to_frame")
        if not (lines := self._lines()):
            raise errors.InputError("this result has no numbers here: no rows judged it")
        frame: DataFrame = pandas.json_normalize(lines)
        return frame

    def plot(self, figure: str | None = None, *, ax: Any = None) -> Any:
        """Draw one of the figures, in colours that colour-blind people can tell apart.

        Parameters
        ----------
        figure : str, optional
            Which; a name that is none lists them. None = the first.
        ax : Axes or sequence of Axes, optional
            Where: as many as the figure has panels. None = a new figure of pyplot, which a
            notebook shows.

        Returns
        -------
        Axes, or array of Axes where there are several panels

        Raises
        ------
        InputError
            There is no such figure, or there are too few axes for it.
        """
        sheets = self._figures()
        if not sheets:
            raise errors.InputError("this result has no figure; to_frame() has its numbers")
        sheet = sheets[
            next(iter(sheets)) if figure is None else checks.one_of("figure", figure, sheets)
        ]
        if ax is None:
            from matplotlib import pyplot

            axes = draw(sheet, on=pyplot.figure()).axes  # made under the user's settings
        else:
            axes = list(np.ravel(ax))
            checks.same("number of Axes", len(axes), len(sheet.panels))
            draw_on(sheet, axes)
        return axes[0] if len(axes) == 1 else np.array(axes)


def figures_of(parts: Sequence[pages.Part], title: Callable[[str], str]) -> dict[str, Sheet]:
    """Return the figures among parts of a page by their titles, intervals before curves."""
    drawn = [part for part in parts if not isinstance(part, pages.Table)]
    ordered = sorted(drawn, key=lambda part: isinstance(part, pages.Curve))
    return {part.title: part_sheet(part, title(part.title)) for part in ordered}


def lines_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a `result.json`: a line for each metric of all rows, a group, a class.

    An interval is that of the value, or of the number after calibration.
    """
    if "after" not in told:
        parts = {"all rows": told, **told.get("groups", {})}
        return [
            {"rows": part, "of": key[8:] or "model", "metric": metric}
            | {name: one[name] for name in ("value", "low", "high")}
            for part, content in parts.items()
            for key, metrics in content.items()
            if key.startswith("metrics")
            for metric, one in metrics.items()
        ]
    ends, covered_by = (told.get("intervals") or {}).get("after", {}), told.get("coverage_by", {})
    for one in covered_by.get("whole", {}).values():  # of all rows
        ends = {"coverage": (one["low"], one["high"])}
    lines = [
        {"rows": "all rows", "metric": metric, "before": told["before"].get(metric), "after": value}
        | dict(zip(("low", "high"), ends.get(metric, (None, None)), strict=True))
        for metric, value in told["after"].items()
    ]
    names = told.get("class_names")
    for by, covered in covered_by.items():
        named = names if by in ("class", "alone") else None
        for part, one in covered.items() if by != "whole" else ():
            which = f"{by} {named[int(part)] if named else part}"
            found = {"after": one["coverage"], "low": one["low"], "high": one["high"]}
            lines.append({"rows": which, "metric": "coverage", **found})
    return lines
