"""The report of a comparison: methods side by side, from `compare.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core.pages import Text
from fedcal.metrics.names import named
from fedcal.results import page
from fedcal.results.comparison_table import as_table
from fedcal.results.families import columns_of, family_in
from fedcal.results.figures import curves
from fedcal.results.figures.drawing import LEFT, RIGHT, Sheet, save_sheets
from fedcal.results.simulation import meanings, more, run_again


def finished(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells with at least one finished run."""
    return [c for c in cells_of(cells) if c["seeds"]]


def cells_of(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return cells, perhaps of a file, with numbers as budgets; older files have null for inf."""
    return [{**c, "epsilon": float("inf" if c["epsilon"] is None else c["epsilon"])} for c in cells]


def names_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each data set to a short unique name."""
    sets = list(dict.fromkeys(str(c["data"]) for c in cells))
    short = [Path(data).name for data in sets]
    return {d: name if short.count(name) == 1 else d for d, name in zip(sets, short, strict=True)}


def comparison_sheets(
    cells: Sequence[Mapping[str, Any]], metrics: Sequence[str] = ()
) -> list[Sheet]:
    """For each data set quality against epsilon, and against bytes.

    Parameters
    ----------
    metrics
        those plotted; () = those of the family
    """
    there = (m for m in columns_of(cells, metrics) if all(_has(c, m) for c in cells))
    plotted = tuple(metrics) or family_in(cells).plotted or tuple(there)[:4]
    sets = names_of(cells) if plotted else {}
    sheets = []
    for i, (data, name) in enumerate(sets.items(), 1):
        mine = [c for c in cells if str(c["data"]) == data]
        stem, of = ("", "") if len(sets) == 1 else (f"-{i}", f": {name}")
        for by, key, shown in (("epsilon", "epsilon", plotted), ("bytes", "bytes_up", plotted[:2])):
            if not any(not c["baseline"] and c[key] > 0 for c in mine):
                continue
            sheet = curves.quality_sheet(mine, shown, f"Quality against {by}{of}", key)
            sheets.append(replace(sheet, name=by + stem, note=page.said("comparison", by)[0]))
    return sheets


COLUMN, SERIES = "column", 8
"""Stem of the figure for a column of a paper (3.3 inches); it has at most so many series."""


def write_column(
    folder: Path, cells: Sequence[Mapping[str, Any]], metrics: Sequence[str] = ()
) -> None:
    """Write quality against epsilon as a figure for one column of a paper, as PDF and SVG.

    Of more methods than `SERIES` those with the best line by the metric that ranks them are shown.
    """
    there, family = finished(cells), family_in(cells)
    first = [c for c in there if c["data"] == there[0]["data"]]
    plotted = [m for m in metrics or [family.best] if m and all(_has(c, m) for c in first)]
    if not plotted or all(c["baseline"] for c in first):
        return
    way = -1 if named(plotted[0]).higher else 1
    ranked = sorted(first, key=lambda c: way * float(c["after"][plotted[0]]["mean"]))
    pick = [*dict.fromkeys(c["label"] for c in ranked)][:SERIES]
    some = [c for c in first if c["label"] in pick]
    sheet = curves.quality_sheet(some, plotted[:2], Path(str(first[0]["data"])).name)
    sheet = replace(sheet, columns=1, width=3.3 - LEFT - RIGHT, name=COLUMN)
    save_sheets({COLUMN: sheet}, folder, (".pdf", ".svg"))


def _has(cell: Mapping[str, Any], metric: str) -> bool:
    return cell["after"].get(metric, {}).get("mean") is not None


def comparison_page(comparison: Mapping[str, Any], *where: Path) -> page.Page:
    """Return the page of the content of `compare.json`."""
    every = cells_of(comparison["cells"])
    cells, sets = finished(every), names_of(every)
    best = family_in(cells).best
    told = page.said(
        "comparison",
        "lines",
        methods=len({c["label"] for c in cells if not c["baseline"]}),
        lines=len(cells),
        ranked=best and named(best).title,
    )
    lines: list[page.Shown] = [Text("", tuple(told), "plain"), replace(as_table(cells), title="")]
    failures = tuple(
        f"{c['label']} on {curves.told({k: c[k] for k in ('data', 'partition', 'epsilon')})}, "
        f"seed {failure['seed']}: {failure['error']}"
        for c in every
        for failure in c.get("failures", ())
    )
    lines += [Text("Runs that failed", failures)] * bool(failures)
    lines.append(meanings(columns_of(cells)))
    statement = Text("", tuple(comparison.get("statement", ())))
    return page.Page(
        "Comparison: " + ", ".join(sets.values()),
        comparison.get("headline", "Methods compared"),
        [
            *comparison_sheets(cells),
            page.Section("All lines", lines),
            page.Section("Privacy", [statement, more(comparison.get("more", ()))]),
            page.Section("Run it again", run_again(*sets, tool="fedcal compare", config={})[:3]),
        ],
        versions=comparison.get("versions", {}),
    )


def card_of(cells: Sequence[Mapping[str, Any]]) -> page.Page:
    """Return what a notebook shows of the cells: their table."""
    there = finished(cells)
    table = page.Section("", [as_table(there)])
    return page.Page(f"Comparison of {len(there)} lines", "", [table])
