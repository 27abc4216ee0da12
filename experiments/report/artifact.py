"""What a run shows that yields something else than a calibrator: its numbers, tables, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedcal.experiments.figures.drawing import Panel, Sheet, curve
from fedcal.experiments.figures.inline import Palette, variable
from fedcal.experiments.figures.style import METHOD_STYLES
from fedcal.experiments.report.page import figure
from fedcal.experiments.show.tables import number, of_part
from fedcal.pages import Curve, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMMON = ("schema", "method", "config", "privacy", "communication", "seconds", "versions")
"""Keys of `result.json` of every run; the others are what its artifact says of itself."""


def sections(
    parts: Sequence[Table | Curve], name: str = "p", palette: Palette = variable
) -> list[dict[str, Any]]:
    """Each part for the template: {title, note, table} or {title, note, figure}."""
    found = []
    for k, part in enumerate(parts):
        section: dict[str, Any] = {"title": part.title, "note": part.note}
        if isinstance(part, Table):
            section["table"] = of_part(part)
        else:
            section["figure"] = figure(curve_sheet(part, part.title), f"{name}{k}", palette)
        found.append(section)
    return found


def curve_sheet(shown: Curve, title: str) -> Sheet:
    """A curve as one panel."""

    def plot(ax: Axes) -> None:
        ax.set(xlabel=shown.x, ylabel=shown.y)
        for style, points in zip(METHOD_STYLES, shown.series.values(), strict=False):
            curve(ax, style, *zip(*points, strict=True))

    words = "; ".join(
        f"{name}: " + ", ".join(f"{x:.4g} {y:.4g}" for x, y in line)
        for name, line in shown.series.items()
    )
    panel = Panel("", plot, f"{shown.y} against {shown.x}. {words}.", aspect=0.75)
    return Sheet(title, 1, (panel,), tuple(zip(METHOD_STYLES, shown.series, strict=False)))


def numbers_of(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The plain numbers that an artifact says of itself."""
    return [
        (key.replace("_", " "), number(value))
        for key, value in result.items()
        if key not in COMMON and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
