"""The report of a comparison: methods side by side, from `compare.json`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from fedcal.core import pages
from fedcal.experiments.report import labels, page, tables
from fedcal.experiments.report.families import Family, columns_of, family_in, shown
from fedcal.experiments.report.figures import curves, diagrams
from fedcal.experiments.report.figures.drawing import Sheet, fixed
from fedcal.experiments.report.headline import HIGHER_IS_BETTER, headline
from fedcal.experiments.report.page import sections
from fedcal.metrics import Reliability
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
        sheets = comparison_sheets(finished(comparison["cells"]))
        context = comparison_context(comparison, sheets)
        return page.write_with_figures(folder, "comparison.html.j2", context, sheets)


def finished(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells with at least one finished run."""
    return [c for c in cells if c["seeds"]]


def names_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each data set to a short unique name."""
    sets = list(dict.fromkeys(str(c["data"]) for c in cells))
    short = [Path(data).name for data in sets]
    return {d: name if short.count(name) == 1 else d for d, name in zip(sets, short, strict=True)}


def comparison_sheets(cells: Sequence[Mapping[str, Any]]) -> dict[str, Sheet]:
    """File name -> figure: for each data set quality against epsilon, and against bytes."""
    sheets: dict[str, Sheet] = {}
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
            sheets[f"epsilon{stem}"] = curves.epsilon_sheet(mine, plotted, title)
        if any(c["bytes_up"] > 0 and not c["baseline"] for c in mine):
            title = f"Quality against bytes: {name}"
            sheets[f"bytes{stem}"] = curves.bytes_sheet(mine, pair, title)
    return sheets


def comparison_context(
    comparison: Mapping[str, Any], sheets: Mapping[str, Sheet]
) -> dict[str, Any]:
    """Everything that the template shows."""
    cells = finished(comparison["cells"])
    family, names = family_in(cells), names_of(cells)
    one = len(names) < 2
    titles = {k: s.title.partition(":")[0] if one else s.title for k, s in sheets.items()}
    methods = list(dict.fromkeys(c["label"] for c in cells if not c["baseline"]))
    seeds = max((_asked(c) for c in cells), default=0)
    return {
        "title": "Comparison: " + ", ".join(names.values()),
        "verdict": comparison.get("headline", "Methods compared"),  # older ones have none
        "methods": methods,
        "seeds": seeds,
        "count": len(cells),
        "sheets": [
            (name, titles[name], page.figure(sheet, f"s{i}"))
            for i, (name, sheet) in enumerate(sheets.items())
        ],
        "handed_over": labels.handed_over(*(str(c["data"]) for c in comparison["cells"])),
        "failures": _failures(comparison["cells"]),
        "table": cells_table(cells),
        "first": family.first,
        "meanings": family.meanings or [labels.METRICS[m] for m in family.plotted],
        "statement": comparison.get("statement", []),
        "more": comparison.get("more", []),
        "versions": comparison.get("versions", {}),
    }


def _asked(cell: Mapping[str, Any]) -> int:
    """Return the number of runs planned for a cell."""
    return len(cell["seeds"]) + len(cell.get("failures", ()))


def _failures(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the failures, a line for each run."""
    lines = []
    for c in cells:
        spent = "" if c["epsilon"] is None else f", ε = {c['epsilon']:g}"
        for failure in c.get("failures", ()):
            run = f"{c['label']} on {c['data']}, {c['partition']}{spent}"
            lines.append(f"{run}, seed {failure['seed']}: {failure['error']}")
    return lines


def cells_table(cells: Sequence[Mapping[str, Any]]) -> tables.TextTable:
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
            spent = "no privacy" if c["epsilon"] is None else f"ε = {c['epsilon']:g}"
            groups.setdefault(f"{place}, {spent}", []).append(c)
    family = family_in(cells)
    metrics = family.plotted or tuple(columns_of(cells))
    rows: list[tuple[tables.Entry, ...]] = []
    sections = {}
    for title, some in groups.items():
        if some:
            sections[len(rows)] = title
            rows += _rows(some, family, metrics)
    headings = [curves.NAMES[m].replace(", nats", "") for m in metrics]
    columns = ("method", *headings, "bytes up", "bytes down", "rounds", "seconds")
    return tables.TextTable(columns, rows, "All cells", sections=sections)


def _rows(
    cells: Sequence[Mapping[str, Any]], family: Family, columns: Sequence[str]
) -> list[tuple[tables.Entry, ...]]:
    """Return the rows of a group, in the order of the family."""
    best = {}
    whole = [c for c in cells if not c.get("failures")]  # others are means over other seeds
    for metric in columns if family.starred else ():
        means = [shown(metric, c["after"][metric]["mean"]) for c in whole if not c["baseline"]]
        pick = max if metric in HIGHER_IS_BETTER else min
        best[metric] = pick(means, key=float) if len(set(means)) > 1 else None
    rows: list[tuple[tables.Entry, ...]] = []
    if family.order:
        cells = sorted(cells, key=lambda c: float(c["after"][family.order]["mean"]))
    for c in cells:
        entries = []
        for metric in columns:
            over = c["after"].get(metric, {})
            if over.get("mean") is None:
                entries.append(tables.Marked(""))
                continue
            mean, std = (shown(metric, over[k]) for k in ("mean", "std"))
            spread = f"± {std}" if float(std) else ""
            starred = c in whole and mean == best.get(metric)
            entries.append(tables.Marked(mean, best=starred, small=spread))
        runs = f"{len(c['seeds'])} of {_asked(c)} runs" if c.get("failures") else ""
        sent = (f"{round(c[key]):,}" for key in ("bytes_up", "bytes_down"))
        seconds = "" if (s := c["seconds"]["mean"]) is None else f"{s:.3f}"
        rows.append(
            (tables.Marked(c["label"], small=runs), *entries, *sent, str(c["rounds"]), seconds)
        )
    return rows


def result_card(result: dict[str, Any], reliability: Mapping[str, Reliability]) -> str:
    """One run: metrics before and after, two reliability diagrams, the guarantee.

    Parameters
    ----------
    result
        the content of `result.json`
    reliability
        "before", "after"
    """
    few = labels.few_rows(result, reliability["after"].rows)
    panels = tuple(diagrams.diagram(part, reliability[part]) for part in ("before", "after"))
    drawn = page.figure(Sheet("", 2, panels), _unique(result["config"], result["after"]), fixed)
    parts: list[dict[str, Any]] = [
        {"title": "", "table": labels.metric_table(result)},
        {"title": "", "figure": drawn},
    ]
    return _card(result, parts, headline(result), *([few] if few else []))


def artifact_card(result: Mapping[str, Any], parts: Sequence[pages.Part]) -> str:
    """One run that yields something else than a calibrator: its parts, and the guarantee."""
    shown = sections(parts, _unique(result["config"], parts), fixed)
    return _card(result, shown, headline(result), *result.get("coverage_warnings", ()))


def comparison_card(comparison: Mapping[str, Any]) -> str:
    """Show a comparison (the content of `compare.json`) as a compact table."""
    cells = finished(comparison["cells"])
    parts = [{"title": "", "table": cells_table(cells)}]
    title = f"Comparison of {len(cells)} cells"
    return page.render("card.html.j2", title=title, parts=parts, lines=())


def _card(result: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], *lines: str) -> str:
    """Show a run: its parts, some lines, and the guarantee."""
    title = f"{result['method']} on {result['config']['data']}"
    lines += (str(result["privacy"]["statement"][0]),)
    return page.render("card.html.j2", title=title, parts=parts, lines=lines)


def _unique(*content: Any) -> str:
    """Return a prefix of ids, unique on a page."""
    return f"k{crc32(repr(content).encode()):x}"
