"""The page of a release that was read again, from its folder."""

from __future__ import annotations

from pathlib import Path

from fedcal.experiments.report.artifact import sections
from fedcal.experiments.report.headline import headline
from fedcal.experiments.report.page import read_json, reading, write_with_figures
from fedcal.experiments.report.simulation import read_parts, sheets_of
from fedcal.experiments.runs.files import PAGE

READING = "reading.json"


def write_reading_report(folder: Path) -> Path:
    """Write `report.html` and its figures beside `reading.json` and `page.json` in `folder`.

    Raises
    ------
    InputError
        A file is missing, or is not what `fedcal evaluate --release` writes.
    FedcalError
        The folder cannot be written.
    """
    told = read_json(folder / READING, "reading")
    with reading(folder, READING):
        parts = read_parts(folder / PAGE)
        sheets = sheets_of(parts)
        context = {
            "title": f"{told['release']} read again: no run, and no further charge",
            "verdict": headline(told),
            "tiles": [],
            "stages": [],
            "sections": sections(parts, sheets=sheets.values()),
            "statement": told["statement"],
            "versions": told["versions"],
        }
        return write_with_figures(folder, "pipeline.html.j2", context, sheets)
