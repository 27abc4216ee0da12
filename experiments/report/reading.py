"""Pages from folders: a release that was read again, or used at a site; a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedcal.experiments.report import labels
from fedcal.experiments.report.headline import headline
from fedcal.experiments.report.page import read_json, reading, sections, write_with_figures
from fedcal.experiments.report.simulation import read_parts, run_context, run_tiles, sheets_of
from fedcal.experiments.runs.files import PAGE

READING = "reading.json"
_AGAIN = " read again: no run, and no further charge"


def write_reading_report(folder: Path) -> Path:
    """Write `report.html` and its figures beside the numbers and `page.json` in `folder`.

    Raises
    ------
    InputError
        A file is missing, or is not what `evaluate --release` or `site recalibrate` writes.
    FedcalError
        The folder cannot be written.
    """
    name = READING if (folder / READING).is_file() else "result.json"
    content = read_json(folder / name, "reading")
    with reading(folder, name):
        parts = read_parts(folder / PAGE)
        sheets = sheets_of(parts)
        context = {
            "title": f"{content['release']}{content.get('title', _AGAIN)}",
            "verdict": content["verdict"] if "verdict" in content else headline(content),
            "tiles": [],
            "sections": sections(parts, sheets=sheets.values()),
            "statement": content["statement"],
            "versions": content["versions"],
        }
        return write_with_figures(folder, "reading.html.j2", context, sheets)


TRAINING = "training.json"

_TILES = {"accuracy": "accuracy", "ece": "top-label ECE"}


def write_training_report(folder: Path, home: Path | None = None) -> Path:
    """Write `report.html` and its figures beside `training.json` and `page.json` in `folder`.

    Parameters
    ----------
    home
        where the files will lie, if not in `folder`

    Raises
    ------
    InputError
        A file is missing, or is not what a training writes.
    FedcalError
        The folder cannot be written.
    """
    training: dict[str, Any] = read_json(folder / TRAINING, "training")
    with reading(folder, TRAINING):
        result = {**training, "method": training["config"]["method"]}
        parts = read_parts(folder / PAGE)
        numbers = [(name, labels.percent(training["test"][key])) for key, name in _TILES.items()]
        sheets = sheets_of(parts, result)
        context = {
            "verdict": headline({**result, "after": training["test"]}),
            "tiles": [*numbers, *run_tiles(result)],
            "sections": sections(parts, sheets=sheets.values()),
            **run_context(result, home or folder, "fedcal train"),
        }
        return write_with_figures(folder, "artifact.html.j2", context, sheets)
