"""The report of a comparison: methods side by side, from `compare.json`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.pages import Text
from fedcal.experiments.report import labels, page
from fedcal.experiments.report.families import Family, columns_of, family_in, shown
from fedcal.experiments.report.figures import curves
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.headline import HIGHER_IS_BETTER
from fedcal.experiments.report.simulation import handed_over, meanings
from fedcal.storage.atomic import path_of


def write_comparison_report(folder: str | Path) -> Path:
    """Write `report.html` and its figures (PNG, SVG) beside `compare.json` in `folder`.

    Returns
    -------
    Path
        the path of the report

    Raises
    ------
    InputError
        `compare.json` is missing, or is not a comparison of schema 1.
    FedcalError
        The folder cannot be written.
    """
    folder = path_of(folder)
    comparison = page.read_json(folder / "compare.json", "comparison")
    with page.reading(folder, "compare.json"):
        return comparison_page(comparison).write(folder)


def finished(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells with at least one finished run."""
    return [c for c in cells_of(cells) if c["seeds"]]


def cells_of(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return cells, perhaps of a file, with numbers as budgets; older files have null for inf."""
    return [{**c, "epsilon": float("inf" if c["epsilon"] is None else c["epsilon"])} for c in cells]


def names_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each data set to a short unique name."""
    sets = list(dict.fromkeys(str(c["data"]) for c in cells))
    short = [Path(data).name for data in sets]
    return {d: name if short.count(name) == 1 else d for d, name in zip(sets, short, strict=True)}


def comparison_sheets(cells: Sequence[Mapping[str, Any]]) -> list[Sheet]:
    """For each data set quality against epsilon, and against bytes."""
    sheets: list[Sheet] = []
    family = family_in(cells)
    in_all = (
        metric
        for metric in columns_of(cells)
        if all(c["after"].get(metric, {}).get("mean") is not None for c in cells)
    )
    plotted = family.plotted or tuple(in_all)[:4]
    if not plotted:
        return sheets
    pair = family.pair or plotted[:2]
    sets = names_of(cells)
    for i, (data, name) in enumerate(sets.items()):
        mine = [c for c in cells if str(c["data"]) == data]
        stem = "" if len(sets) == 1 else f"-{i + 1}"
        if any(not c["baseline"] for c in mine):
            title = f"Quality against epsilon: {name}"
            sheet = curves.epsilon_sheet(mine, plotted, title)
            sheets.append(replace(sheet, name=f"epsilon{stem}", note=_EPSILON))
        if any(c["bytes_up"] > 0 and not c["baseline"] for c in mine):
            title = f"Quality against bytes: {name}"
            sheet = curves.bytes_sheet(mine, pair, title)
            sheets.append(replace(sheet, name=f"bytes{stem}", note=_BYTES))
    return sheets


_EPSILON = (
    "To the left, more privacy; ∞ is a run without. Lines across are baselines that read the rows "
    "themselves. Whiskers are one standard deviation over seeds."
)
_BYTES = (
    "Bytes that a client sends in the complete run, against quality. Colours tell methods apart, "
    "markers the rest. Baselines send nothing and are not shown."
)


def comparison_page(comparison: Mapping[str, Any]) -> page.Page:
    """Return the page of the content of `compare.json`."""
    cells = finished(comparison["cells"])
    family, names = family_in(cells), names_of(cells)
    methods = dict.fromkeys(c["label"] for c in cells if not c["baseline"])
    seeds = max((_asked(c) for c in cells), default=0)
    failures = _failures(cells_of(comparison["cells"]))
    about = (
        f"{len(methods)} method{'s' * (len(methods) != 1)} in {len(cells)} cells, mean ± standard "
        f"deviation over {seeds} seed{'s' * (seeds != 1)}. {family.first}"
    )
    if failures:
        about += " If a run of a cell failed, its means are over the others, and it gets no star."
    known = family.meanings or [labels.METRICS[m] for m in family.plotted]
    every: list[page.Shown] = [Text("", (about,), "plain"), cells_table(cells), meanings(known)]
    if failures:
        every.insert(2, Text("Runs that failed", tuple(failures)))
    sets = dict.fromkeys(str(c["data"]) for c in comparison["cells"])
    again = [
        handed_over(*sets),
        Text("", ("The grid lies beside this file:",), "plain"),
        Text("", ("fedcal compare --config config.toml",), "code"),
    ]
    one = len(names) < 2
    figures = comparison_sheets(cells)
    return page.Page(
        "Comparison: " + ", ".join(names.values()),
        comparison.get("headline", "Methods compared"),  # older ones have none
        [
            *(page.Section(f.title.partition(":")[0] if one else f.title, [f]) for f in figures),
            page.Section("All cells", every),
            page.Section("Privacy", [Text("", tuple(comparison.get("statement", ())))]),
            page.Section("Run it again", again),
        ],
        versions=comparison.get("versions", {}),
    )


def card_of(cells: Sequence[Mapping[str, Any]]) -> page.Page:
    """Return what a notebook shows of the cells: their table."""
    there = finished(cells)
    table = page.Section("", [cells_table(there)])
    return page.Page(f"Comparison of {len(there)} cells", "", [table])


def _asked(cell: Mapping[str, Any]) -> int:
    """Return the number of runs planned for a cell."""
    return len(cell["seeds"]) + len(cell.get("failures", ()))


def _failures(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the failures, a line for each run."""
    lines = []
    for c in cells:
        spent = "" if math.isinf(c["epsilon"]) else f", ε = {c['epsilon']:g}"
        for failure in c.get("failures", ()):
            run = f"{c['label']} on {c['data']}, {c['partition']}{spent}"
            lines.append(f"{run}, seed {failure['seed']}: {failure['error']}")
    return lines


def cells_table(cells: Sequence[Mapping[str, Any]]) -> pages.Table:
    """All cells, grouped by facet and budget; the best of a column in its group is marked."""
    names = names_of(cells)
    base = [c for c in cells if c["baseline"]]
    groups = {
        f"baselines, {name}": [c for c in base if str(c["data"]) == data]
        for data, name in names.items()
    }
    keys, places = curves.differing(cells), dict[str, list[Mapping[str, Any]]]()
    for c in cells:
        if not c["baseline"]:
            places.setdefault(curves.told(c, keys) or str(c["partition"]), []).append(c)
    for place, some in places.items():
        for c in sorted(some, key=curves.budget):
            spent = "no privacy" if math.isinf(c["epsilon"]) else f"ε = {c['epsilon']:g}"
            groups.setdefault(f"{place}, {spent}", []).append(c)
    family = family_in(cells)
    metrics = family.plotted or tuple(columns_of(cells))
    rows: list[tuple[pages.Entry, ...]] = []
    sections = {}
    for title, some in groups.items():
        if some:
            sections[len(rows)] = title
            rows += _rows(some, family, metrics)
    headings = [curves.NAMES[m].replace(", nats", "") for m in metrics]
    columns = ("method", *headings, "bytes up", "bytes down", "rounds", "seconds")
    return pages.Table("All cells", columns, rows, left=(0,), sections=sections)


def _rows(
    cells: Sequence[Mapping[str, Any]], family: Family, columns: Sequence[str]
) -> list[tuple[pages.Entry, ...]]:
    """Return the rows of a group, in the order of the family."""
    best = {}
    whole = [c for c in cells if not c.get("failures")]  # others are means over other seeds
    for metric in columns if family.starred else ():
        means = [shown(metric, c["after"][metric]["mean"]) for c in whole if not c["baseline"]]
        pick = max if metric in HIGHER_IS_BETTER else min
        best[metric] = pick(means, key=float) if len(set(means)) > 1 else None
    rows: list[tuple[pages.Entry, ...]] = []
    if family.order:
        cells = sorted(cells, key=lambda c: float(c["after"][family.order]["mean"]))
    for c in cells:
        entries = []
        for metric in columns:
            over = c["after"].get(metric, {})
            if over.get("mean") is None:
                entries.append(pages.Marked(""))
                continue
            mean, std = (shown(metric, over[k]) for k in ("mean", "std"))
            spread = f"± {std}" if float(std) else ""
            starred = c in whole and mean == best.get(metric)
            entries.append(pages.Marked(mean, best=starred, small=spread))
        runs = f"{len(c['seeds'])} of {_asked(c)} runs" if c.get("failures") else ""
        sent = (f"{round(c[key]):,}" for key in ("bytes_up", "bytes_down"))
        seconds = "" if (s := c["seconds"]["mean"]) is None else f"{s:.3f}"
        rows.append(
            (pages.Marked(c["label"], small=runs), *entries, *sent, str(c["rounds"]), seconds)
        )
    return rows
