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
from fedcal.experiments.report.artifact import sections
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.figures.part_panels import part_sheet
from fedcal.experiments.report.page import figure, write_with_figures
from fedcal.experiments.report.tables import TextTable
from fedcal.experiments.study.next_steps import REHEARSAL, Told, faults, hidden, outcome, some

MOST_LINES = 10
"""Sites in the table of page 1: those with a fault come first."""

_COLUMNS = ("site", "verdict", "gap, points", "slope")
_SHARES = {
    "recall": "sensitivity, %",
    "specificity": "specificity, %",
    "precision": "precision, %",
    "flagged": "flagged, %",
}
_GAP = {
    "positive": "score minus outcome: above 0 the model predicts too high",
    "confidence": "confidence minus share correct: above 0 the model is overconfident",
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
        "Took no part": some(told["absent"]) or "nobody: all sites took part",
        "Privacy": f"epsilon {told['epsilon_release']:g} of each {terms['protect']}; this year "
        f"{told['spent']:g} of {terms['epsilon']:g} spent, {told['left']:g} left; until "
        f"{told['until']}",
    }
    more = len(lines) - MOST_LINES
    context = {
        "title": f"{told['study']}, {told['name']}",
        "verdict": told["headline"],
        "rehearsal": REHEARSAL * told["rehearsal"],
        "facts": TextTable((), [pair for pair in facts.items() if pair[1]], left=(0, 1)),
        "verdicts": TextTable(_COLUMNS[:4], lines[:MOST_LINES], left=(0, 1)),
        "unlisted": f"And {more} more: table Calibration." * (more > 0),
        "gap": _GAP[told["score"]],
        "steps": [step.split("`") for step in told["next"]],
        "sections": sections(list(parts(told))),
        "curves": curves and figure(curves, "curves"),
        "guidelines": guidelines(told),
        **{key: told[key] for key in ("publish", "methods", "versions")},
        "statement": [*told["remarks"], *told["statement"]],
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
    yield from ((site, "took no part", "", "") for site in told["absent"])


def _interval(told: Mapping[str, Any], scale: float = 1, digits: int = 2) -> str:
    """`-20 (-24 to -16)`; "" where nothing is known, and an end that is not there as infinity."""
    if told["value"] is None:
        return ""
    ends = {"value": 0.0, "low": "-∞", "high": "∞"}
    shown = (f"{scale * told[k]:z.{digits}f}" if told[k] is not None else ends[k] for k in ends)
    return "{} ({} to {})".format(*shown)


def _tested(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return _interval(one["intercept"]), _p_value(one["adjusted"]), f"{100 * one['limit']:.1f}"


def _p_value(p: float) -> str:
    return f"{p:.3f}" if p >= 1e-3 else "< 0.001"


def parts(told: Told) -> Iterator[Part]:
    """Tables of the details, from top to bottom."""
    rows: Any = [
        (site, gap, slope, *_tested(told["sites"][site]), words)
        for site, words, gap, slope in _verdicts(told, 1)
        if site in told["sites"]
    ]
    note = (
        "p-values are of an offset of 0 and a slope of 1 together, corrected for all tests of this "
        f'release (Holm): below {told["level"]:.3g} a site is named. Gaps from "seen from" on are '
        "found with a probability of 80 %."
    )
    columns = ("intercept", "p-value", "seen from", "verdict")
    yield Table("Calibration", ("site", *_COLUMNS[2:], *columns), tuple(rows), note)
    note = "Numbers with the standard deviation of their noise; metrics with 95 % intervals."
    yield _measured("By site", {(site,): one for site, one in told["metrics"].items()}, told, note)
    for name, one in told["since"].items():
        tests = told["changes"].get(name, {}).items()
        rows = [(s or "all sites", c["words"], _p_value(c["adjusted"])) for s, c in tests]
        rows = rows or [("all sites", f"not comparable: {one['why']}", "")]
        yield Table(f"Change since {name}", ("site", "calibration", "p-value"), tuple(rows))
    if told["calibrator"].get("sites"):
        table = change_table(told["calibrator"], "site")
        note = f"Tried on the release; nobody uses it. {table.note} By the middles of buckets."
        yield replace(table, title="A common calibrator", note=note)
    for at, each in told["thresholds"].items():
        rows = [
            (s, *(whole("accuracy", from_json(own[n])) if own else "too few" for n in _SHARES))
            for s, own in each.items()
        ]
        yield Table(
            f"Threshold {at} of the {outcome(told)}", ("site", *_SHARES.values()), tuple(rows)
        )
    if told["groups"]:
        note = "Estimates, each alone: no verdicts are made of groups."
        yield _measured("Groups", {(g["group"], g["site"]): g for g in told["groups"]}, told, note)
    if told["next_site"]:
        yield next_site.table(told["next_site"])


def _measured(
    title: str, lines: Mapping[tuple[str, ...], Mapping[str, Any]], told: Told, note: str
) -> Table:
    """How many there are, and metrics, of each line."""
    names = max((list(one["of"]) for one in lines.values()), key=len)
    rows = []
    for line, one in lines.items():
        found = {name: whole(name, from_json(e)) for name, e in one["of"].items()}
        number = f"{max(one['rows'], 0):,.0f} ± {one['noise']:,.0f}"
        rows.append((*line, number, *(found.get(name, "too few") for name in names)))
    columns = (*("group", "site")[-len(rows[0]) + len(names) + 1 :], told["plural"])
    headings = [heading(name, told["score"]) for name in names]
    return Table(title, (*columns, *headings), tuple(rows), note)


def _curves(told: Told) -> Sheet | None:
    """A panel for each site; None without any."""
    parts: Any = pages.from_json(told["curves"])
    sheets = [part_sheet(curve, curve.title) for curve in parts]
    panels = tuple(replace(sheet.panels[0], title=sheet.title) for sheet in sheets)
    title = f"{_model(told)}, {told['name']}: reliability at each site"
    legend = max((sheet.legend for sheet in sheets), key=len, default=())
    return Sheet(title, min(3, len(panels)), panels, legend) if panels else None


def _filling(told: Told) -> dict[str, str]:
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
        "limits": f"{100 * min(limits):.0f} to {100 * max(limits):.0f} points",
        "fedcal": f"fedcal {told['versions']['fedcal']}",
    }


def guidelines(told: Told) -> list[tuple[str, TextTable]]:
    """Title and items of each reporting guideline, in the order of their numbers."""
    found, words = [], _filling(told)
    for one in tomllib.loads(Path(__file__).with_name("tripod.toml").read_text("utf-8"))[
        "guideline"
    ]:
        items = {key: (ask, text.format_map(words)) for key, (ask, text) in one["filled"].items()}
        for kind in ("author", "not of an evaluation"):
            asked: Any = (line.split(maxsplit=1) for line in one[kind].split(";"))
            items |= {key: (ask, kind) for key, ask in asked}
        order = sorted(items, key=lambda key: (int(re.sub(r"\D", "", key)), key))
        rows = [(key, *items[key]) for key in order]
        found.append((one["title"], TextTable(("item", "what", "here"), rows, left=(0, 1, 2))))
    return found
