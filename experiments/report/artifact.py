"""What a run shows that yields something else than a calibrator: its numbers, tables, curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedcal.core import pages
from fedcal.core.pages import Intervals, Part, Table
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.figures.inline_svg import Palette, variable
from fedcal.experiments.report.figures.part_panels import part_sheet
from fedcal.experiments.report.page import figure
from fedcal.experiments.report.tables import of_part

COMMON = ("schema", "method", "config", "privacy", "communication", "seconds", "versions")
"""Keys of `result.json` of every run; the others are what its artifact says of itself."""


def sections(
    parts: Sequence[Part],
    name: str = "p",
    palette: Palette = variable,
    sheets: Iterable[Sheet] | None = None,
) -> list[dict[str, Any]]:
    """Each part for the template: {title, note, table} or {title, note, figure}.

    Parameters
    ----------
    parts
        from top to bottom
    name
        prefix of ids, unique on the page
    palette
        where colours come from
    sheets
        the figures of those that are no tables, where they are drawn already
    """
    content, drawn = [], None if sheets is None else iter(sheets)
    for k, part in enumerate(parts):
        section: dict[str, Any] = {"title": part.title, "note": part.note}
        if isinstance(part, Table):
            section["table"] = of_part(part)
        else:
            sheet = part_sheet(part, part.title) if drawn is None else next(drawn)
            section["forest"] = isinstance(part, Intervals)
            section["figure"] = figure(sheet, f"{name}{k}", palette)
        content.append(section)
    return content


def numbers_of(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the plain numbers of an artifact's result, and those `after` it on test rows."""
    numbers = {**result, **(result.get("after") or {})}
    return [
        (key.replace("_", " "), pages.number(value))
        for key, value in numbers.items()
        if key not in COMMON and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
