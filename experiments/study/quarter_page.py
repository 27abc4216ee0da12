"""The report of a quarter, from its `study.json` alone: page 1 to act on, then the details."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.pages import Part, Table
from fedcal.evaluation.by_group import change_table
from fedcal.evaluation.intervals.intervals import from_json
from fedcal.evaluation.pages.page import heading, whole
from fedcal.evaluation.sites import next_site
from fedcal.evaluation.sites.verdicts import least_points
from fedcal.experiments.report.artifact import sections
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.figures.part_panels import part_sheet
from fedcal.experiments.report.page import figure, write_with_figures
from fedcal.experiments.report.tables import TextTable
from fedcal.experiments.study.next_steps import Told, faults, hidden, outcome, some

MOST_LINES = 10
"""Sites in the table of page 1: those with a fault come first."""

_COLUMNS = ("site", "verdict", "gap, points", "slope")
_GUIDES = ("TRIPOD+AI", "TRIPOD-Cluster", "item", "here")
_SHARES = {
    "recall": "sensitivity, %",
    "specificity": "specificity, %",
    "precision": "precision, %",
    "flagged": "flagged, %",
}


def write_quarter_page(folder: Path, told: Told) -> Path:
    """Write `report.html` and its figures; KeyError or TypeError for another content."""
    curves, terms, lines = _curves(told), told["terms"], list(_verdicts(told, 0))
    facts = {
        "Question": told["question"],
        "Date": told["date"],
        "Model": f"{_model(told)}: {outcome(told)}",
        "Contributors": some(told["contributors"]),
        "Took part": some(told["took_part"]),
        "Absent": some(told["absent"]) or "none",
        "Privacy": f"epsilon {told['epsilon_release']:g} of each {terms['protect']}; this year "
        f"{told['spent']:g} of {terms['epsilon']:g} spent, {told['left']:g} left; until "
        f"{told['until']}",
    }
    context = {
        "title": f"{told['study']}, {told['name']}",
        "verdict": told["headline"],
        "versions": told["versions"],
        "told": told,
        "facts": TextTable((), [pair for pair in facts.items() if pair[1]], left=(0, 1)),
        "verdicts": TextTable(_COLUMNS, lines[:MOST_LINES], left=(0, 1)),
        "more": len(lines) - MOST_LINES,
        "steps": [step.split("`") for step in told["next"]],
        "sections": sections(list(parts(told))),
        "curves": curves and figure(curves, "curves"),
        "items": TextTable(_GUIDES, items(told), left=range(4)),
        "words": _words(told),
        "cuts": ", ".join(f"{edge:.4g}" for edge in told["edges"][1:-1]),
    }
    sheets = {"curve-1": curves} if curves else {}
    return write_with_figures(folder, "quarter.html.j2", context, sheets)


def _model(told: Told) -> str:
    model = told["terms"]["model"]
    return f"{model['name']}, version {model['version']}"


def _verdicts(told: Told, digits: int) -> Iterator[tuple[str, ...]]:
    """A line for each site: faults first, then those that cannot tell."""
    for site in dict.fromkeys([*faults(told), *hidden(told), *told["sites"]]):
        one = told["sites"][site]
        yield site, one["words"], _interval(one["gap"], 100, digits), _interval(one["slope"])
    yield from ((site, "absent", "", "") for site in told["absent"])


def _interval(told: Mapping[str, Any], scale: float = 1, digits: int = 2) -> str:
    """`-20 (-24 to -16)`; "" where nothing is known, and an end that is not there as infinity."""
    if told["value"] is None:
        return ""
    ends = {"value": 0.0, "low": "-∞", "high": "∞"}
    shown = (f"{scale * told[k]:z.{digits}f}" if told[k] is not None else ends[k] for k in ends)
    return "{} ({} to {})".format(*shown)


def _p_value(p: float) -> str:
    return f"{p:.3f}" if p >= 1e-3 else "<\xa00.001"


def parts(told: Told) -> Iterator[Part]:
    """Tables of the details, from top to bottom."""
    rows: Any = []
    for site, words, gap, slope in _verdicts(told, 1):
        if one := told["sites"].get(site):
            more = _interval(one["intercept"]), _p_value(one["adjusted"])
            rows.append((site, gap, slope, *more, least_points(one["limit"]), words))
    note = (
        "p-values are of an offset of 0 and a slope of 1 together, corrected for all tests of this "
        f'release (Holm): below {told["level"]:.3g} a site is named. Gaps of "seen from", '
        "rounded up, and more are found with a probability of 80 %."
    )
    columns = ("intercept", "p-value", "seen from", "verdict")
    yield Table("Calibration", ("site", *_COLUMNS[2:], *columns), tuple(rows), note)
    note = "Numbers with the standard deviation of their noise; metrics with 95 % intervals."
    yield _measured("By site", told["metrics"], told, note)
    for name, one in told["since"].items():
        tests = told["changes"].get(name, {}).items()
        rows = []
        for site, c in tests:
            moved = _interval(c["gap_change"], 100, 1), _interval(c["slope_change"])
            rows.append((site or "all sites", c["words"], *moved, _p_value(c["adjusted"])))
        rows = rows or [("all sites", f"not comparable: {one['why']}", "", "", "")]
        columns = ("calibration", "gap, points: change", "slope: change", "p-value")
        yield Table(f"Change since {name}", ("site", *columns), tuple(rows))
    if told["calibrator"].get("sites"):
        table = change_table(told["calibrator"], "site")
        rows = [(*row[:-1], row[-1] or "cannot tell") for row in table.rows]
        note = f"One for all sites (Platt), tried on the release; nobody uses it. {table.note}"
        yield replace(table, title="A common calibrator", rows=tuple(rows), note=note)
    for at, each in told["thresholds"].items():
        yield _measured(f"Threshold {at} of the {outcome(told)}", each, told, "")
    if told["groups"]:
        note = "With 95 % intervals, each alone, where there are not too few; no verdicts."
        rows = []
        for one in told["groups"]:
            both = _interval(one["gap"], 100, 1), _interval(one["slope"])
            rows.append((one["site"] or "all sites", one["group"], _number(one), *both))
        yield Table("Groups", ("site", "group", told["plural"], *_COLUMNS[2:]), tuple(rows), note)
    if told["next_site"]:
        yield next_site.table(told["next_site"])


def _number(one: Told) -> str:
    return f"{max(one['rows'], 0):,.0f} ± {one['noise']:,.0f}"


def _measured(title: str, each: Told, told: Told, note: str) -> Table:
    """How many there are, and metrics, of each site."""
    names = max((list(one["of"]) for one in each.values()), key=len)
    rows = []
    for site, one in each.items():
        of = ((n, "accuracy" if n in _SHARES else n, from_json(e)) for n, e in one["of"].items())
        found = {name: whole(kind, estimate) for name, kind, estimate in of}
        rows.append((site, _number(one), *(found.get(name, "too few") for name in names)))
    headings = [_SHARES.get(name) or heading(name, told["score"]) for name in names]
    return Table(title, ("site", told["plural"], *headings), tuple(rows), note)


def _curves(told: Told) -> Sheet | None:
    """A panel for each site; None without any."""
    parts: Any = pages.from_json(told["curves"])
    sheets = [part_sheet(curve, curve.title) for curve in parts]
    panels = tuple(replace(sheet.panels[0], title=sheet.title) for sheet in sheets)
    title = f"{_model(told)}, {told['name']}: reliability at each site"
    legend = max((sheet.legend for sheet in sheets), key=len, default=())
    return Sheet(title, min(3, len(panels)), panels, legend) if panels else None


def _words(told: Told) -> dict[str, str]:
    """What items are filled with."""
    about, limits = told["about"], [one["limit"] for one in told["sites"].values()]
    size = f"About {sum(about.values()):,} {told['plural']}, as the sites said before"
    return {
        "model": _model(told),
        "outcome": outcome(told),
        "question": told["question"],
        "date": told["date"],
        "count": f"{len(told['sites'])} of {len(about)} sites",
        "sites": some(list(told["sites"])),
        "size": size if all(about.values()) else "author",
        "groups": "Table Groups" if told["groups"] else "No groups were counted",
        "heterogeneity": next_site.sentence(told["next_site"]) if told["next_site"] else "author",
        "limits": f"{least_points(min(limits))} to {least_points(max(limits))}",
        "fedcal": f"fedcal {told['versions']['fedcal']}",
    }


def items(told: Told) -> list[tuple[str, ...]]:
    """Items of two reporting guidelines: number in each, what is asked, and what is said here."""
    text = tomllib.loads(Path(__file__).with_name("tripod.toml").read_text("utf-8"))
    asked = {key: filled.format_map(_words(told)) for key, filled in text["filled"].items()}
    for kind, said in (("author", "author"), ("development", "not of an evaluation")):
        asked |= dict.fromkeys(map(str.strip, text[kind].split(";")), said)
    keys = ((key.split(maxsplit=1), said) for key, said in asked.items())
    rows = [(*numbers.split("/"), what, said) for (numbers, what), said in keys]
    return sorted(rows, key=lambda row: [(int(re.sub(r"\D", "", n) or 99), n) for n in row[:2]])
