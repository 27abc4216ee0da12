"""The report of a run that yields something else than a calibrator: its tables and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.errors import InputError
from fedcal.experiments.figures.curves import METHOD_STYLES
from fedcal.experiments.figures.drawing import save_sheets
from fedcal.experiments.figures.inline import Palette, variable
from fedcal.experiments.figures.panel import Line, Panel, Sheet, linear_axis
from fedcal.experiments.files import PAGE
from fedcal.experiments.report.page import (
    figure,
    read_json,
    reading,
    write_page,
)
from fedcal.experiments.report.simulation import FILE, run_context, run_tiles, title_of
from fedcal.experiments.show.tables import number, of_part
from fedcal.experiments.statement.sentences import guarantee
from fedcal.pages import Curve, Table, from_json

COMMON = ("schema", "method", "config", "privacy", "communication", "seconds", "versions")
"""Keys of `result.json` of every run; the others are what its artifact says of itself."""


def write_artifact_report(folder: Path, home: Path) -> Path:
    """Write `report.html` and a figure of each curve; see `write_report`.

    Reads `result.json` and `page.json`, nothing else.

    Raises
    ------
    InputError
        A file is missing, or is not what a run of this version writes.
    FedcalError
        The folder cannot be written.
    """
    result = read_json(folder / "result.json", "result")
    page = read_json(folder / PAGE, "page")
    try:
        parts = from_json(page.get("parts"))
    except InputError as e:
        raise InputError(f"{folder / PAGE}: {e}") from None
    with reading(folder, "result.json"):
        curves = [part for part in parts if isinstance(part, Curve)]
        sheets = {
            f"curve-{k}": curve_sheet(curve, title_of(result, curve.title))
            for k, curve in enumerate(curves, 1)
        }
        numbers = _numbers(result)
        said = [" ".join(pair) for pair in numbers]
        write_page(
            folder / FILE,
            "artifact.html.j2",
            title=f"{result['method']} on {Path(str(result['config']['data'])).name}",
            verdict=f"{'; '.join([*said, guarantee(result['privacy'])])}.",
            tiles=[*numbers[:3], *run_tiles(result)],
            sections=sections(parts),
            **run_context(result, sheets, home),
        )
        save_sheets(sheets, folder)
    return folder / FILE


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


def curve_sheet(curve: Curve, title: str) -> Sheet:
    """A curve as one panel."""
    looks = dict(zip(curve.series, METHOD_STYLES, strict=False))
    xs, ys = ([p[i] for line in curve.series.values() for p in line] for i in (0, 1))
    said = "; ".join(
        f"{name}: " + ", ".join(f"{x:.4g} {y:.4g}" for x, y in line)
        for name, line in curve.series.items()
    )
    panel = Panel(
        title="",
        x=linear_axis(curve.x, xs),
        y=linear_axis(curve.y, ys),
        marks=tuple(
            Line(looks[name], [x for x, _ in line], [y for _, y in line])
            for name, line in curve.series.items()
        ),
        said=f"{curve.y} against {curve.x}. {said}.",
        aspect=0.75,
    )
    return Sheet(title, 1, (panel,), tuple((looks[name], name) for name in curve.series))


def _numbers(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The plain numbers that an artifact says of itself."""
    return [
        (key.replace("_", " "), number(value))
        for key, value in result.items()
        if key not in COMMON and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
