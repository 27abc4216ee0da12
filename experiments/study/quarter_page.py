"""The report of a quarter, from its `study.json` alone: page 1 to act on, then the details."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.pages import Part, Table
from fedcal.core.printable import listed
from fedcal.evaluation.by_group import change_table
from fedcal.evaluation.intervals.intervals import from_json
from fedcal.evaluation.pages.page import heading, whole
from fedcal.evaluation.sites import next_site
from fedcal.experiments.report.artifact import sections
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.figures.part_panels import part_sheet
from fedcal.experiments.report.page import figure, write_with_figures
from fedcal.experiments.report.tables import TextTable
from fedcal.experiments.study.next_steps import REHEARSAL, Told, faults, hidden, outcome

MOST_LINES = 14
"""Sites in the table of page 1: those with a fault come first."""

_SHARES = ("sensitivity", "specificity", "precision", "flagged")
_OF = {
    "positive": "score minus outcome: above 0 the model predicts too high",
    "confidence": "confidence minus share correct: above 0 the model is overconfident",
}


def write_quarter_page(folder: Path, told: Told) -> Path:
    """Write `report.html` and its figures; KeyError or TypeError for another content."""
    curves, lines = _curves(told), _verdicts(told)
    agreed, spent = told["agreed"], f"{told['spent']:g} of {told['agreed']['epsilon']:g} spent"
    facts = {
        "Question": told["question"],
        "Date": told["date"],
        "Model": f"{told['model']['name']}, version {told['model']['version']}: {outcome(told)}",
        "Contributors": listed(told["contributors"], most=12),
        "Took part": listed(told["took_part"], most=12),
        "Took no part": listed(told["absent"], most=12) or "nobody: all sites took part",
        "Privacy": f"epsilon {agreed['epsilon_release']:g} of each {agreed['protect']}; this year "
        f"{spent}, {told['left']:g} left; the study ends on {agreed['until']}",
    }
    more = len(lines) - MOST_LINES
    context = {
        "title": f"{told['study']}, {told['name']}",
        "verdict": told["headline"],
        "versions": told["versions"],
        "rehearsal": REHEARSAL * told["rehearsal"],
        "facts": TextTable((), [pair for pair in facts.items() if pair[1]], left=(0, 1)),
        "verdicts": TextTable(_COLUMNS[:4], lines[:MOST_LINES], left=(0, 1)),
        "unlisted": f"And {more} more: table Calibration." * (more > 0),
        "gap": _OF[agreed["score"]],
        "steps": [step.split("`") for step in told["next"]],
        "publish": " ".join(told["publish"]),
        "sections": sections(list(_parts(told))),
        "curves": figure(curves, "curves") if curves else None,
        "curves_note": told["curves"][0]["note"] if curves else "",
        "methods": " ".join(told["methods"]),
        "guidelines": [_guideline(one, _filling(told)) for one in _guidelines()],
        "statement": [*told["remarks"], *told["statement"]],
    }
    sheets = {"curve-1": curves} if curves else {}
    return write_with_figures(folder, "quarter.html.j2", context, sheets)


_COLUMNS = ("site", "verdict", "gap, points", "slope", "intercept", "p-value", "seen from, points")


def _verdicts(told: Told, digits: int = 0) -> list[tuple[str, ...]]:
    """A line for each site: faults first, then those that cannot tell."""
    sites = told["sites"]
    first = dict.fromkeys([*faults(told), *hidden(told), *sites])
    pairs = [(s, sites[s]) for s in first]
    lines = [
        (s, v["words"], _interval(v["gap"], 100, digits), _interval(v["slope"])) for s, v in pairs
    ]
    return lines + [(site, "took no part", "", "") for site in told["absent"]]


def _interval(told: Mapping[str, Any] | None, scale: float = 1, digits: int = 2) -> str:
    """`-20 (-24 to -16)`; "" where nothing is known."""
    if told is None or None in told.values():
        return ""
    value, low, high = (f"{scale * told[k]:z.{digits}f}" for k in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _p_value(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else "< 0.0001"


# -- details -------------------------------------------------------------------------------------


def _parts(told: Told) -> Iterator[Part]:
    agreed, sites, everybody = told["agreed"], told["sites"], {"all sites": told["whole"]}
    rows: Any = [
        (*line, _interval(v["intercept"]), _p_value(v["adjusted"]), f"{100 * v['limit']:.1f}")
        for line in _verdicts(told, 1)
        if (v := sites.get(line[0]))
    ]
    yield Table(
        "Calibration",
        _COLUMNS,
        tuple(rows),
        "p-values are of an offset of 0 and a slope of 1 together, corrected for all tests of this "
        f"release (Holm): below {told['level']:.3g} a site is named. Gaps from the last column on "
        "are seen with a probability of 80 %.",
    )
    names = max((one["metrics"] for one in (everybody | sites).values()), key=len)
    rows = [(s, *_cells(one, names)) for s, one in (everybody | sites).items()]
    note = f"{agreed['plural'].capitalize()} with the standard deviation of their noise; the others with 95 % intervals."
    headings = [heading(name, agreed["score"]) for name in names]
    yield Table("By site", ("site", agreed["plural"], *headings), tuple(rows), note)
    for name, one in told["since"].items():
        tests = told["changes"].get(name, {}).items()
        rows = [(s or "all sites", c["words"], _p_value(c["adjusted"])) for s, c in tests]
        rows = rows or [("all sites", f"not comparable: {one['why']}", "")]
        yield Table(f"Change since {name}", ("site", "calibration", "p-value"), tuple(rows))
    if told["calibrator"].get("sites"):
        title = "A common calibrator: the gap at each site before anybody uses it"
        yield replace(change_table(told["calibrator"], "site"), title=title)
    names = max(told["own"].values(), key=len)
    rows = [(s, *(_interval(own[k]) for k in names)) for s, own in told["own"].items()]
    yield Table(
        "A calibrator of its own: what the other sites let expect of each",
        ("site", *names),
        tuple(rows),
        "A site that recalibrates at home begins with this, and its own rows decide. An offset of 0 "
        "(on the log odds) and a slope of 1 leave the model as it is.",
    )
    for at, each in told["thresholds"].items():
        rows = [
            (s, *(whole("accuracy", from_json(e)) for e in own.values())) if own else (s, *_FEW)
            for s, own in each.items()
        ]
        columns = ("site", *(f"{name}, %" for name in _SHARES))
        yield Table(f"Threshold {at} of the {outcome(told)}", columns, tuple(rows))
    if told["groups"]:
        names = max((one["metrics"] for one in told["groups"]), key=len)
        rows = [(one["group"], one["site"], *_cells(one, names)) for one in told["groups"]]
        headings = [heading(name, agreed["score"]) for name in names]
        note = "Estimates, each alone: no verdicts are made of groups."
        yield Table("Groups", ("group", "site", agreed["plural"], *headings), tuple(rows), note)
    if told["next_site"]:
        yield next_site.table(told["next_site"])


_FEW = ("too few",) * len(_SHARES)


def _cells(one: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """How many there are, and metrics with intervals."""
    found, rows = one["metrics"], one["rows"]
    each = [whole(n, from_json(found[n])) if n in found else "too few" for n in names]
    return [f"{max(rows['value'], 0):,.0f} ± {rows['noise']:,.0f}", *each]


def _curves(told: Told) -> Sheet | None:
    """A panel for each site; None without any."""
    sheets = [part_sheet(curve, curve.title) for curve in pages.from_json(told["curves"])]  # type: ignore[arg-type]
    if not sheets:
        return None
    panels = tuple(replace(sheet.panels[0], title=sheet.title) for sheet in sheets)
    title = f"{told['model']['name']}, {told['name']}: reliability at each site"
    return Sheet(title, min(3, len(panels)), panels, max((s.legend for s in sheets), key=len))


# -- guidelines ----------------------------------------------------------------------------------


def _guidelines() -> list[dict[str, Any]]:
    text = Path(__file__).with_name("tripod.toml").read_text("utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["guideline"]
    return found


def _filling(told: Told) -> dict[str, str]:
    """What items are filled with."""
    agreed, sites, groups = told["agreed"], told["sites"], bool(told["groups"])
    limits, about = [one["limit"] for one in sites.values()], agreed["about"]
    size = f"About {sum(about.values()):,} {agreed['plural']}, as the sites said before"
    return {
        "model": f"{told['model']['name']}, version {told['model']['version']}",
        "outcome": outcome(told),
        "question": told["question"],
        "date": told["date"],
        "count": f"{len(sites)} of {len(about)} sites",
        "sites": listed(list(sites), most=12),
        "size": size if all(about.values()) else "author",
        "groups": "Table Groups" if groups else "No groups were counted",
        "heterogeneity": next_site.sentence(told["next_site"]) if told["next_site"] else "author",
        "limits": f"{100 * min(limits):.0f} to {100 * max(limits):.0f} points",
        "fedcal": f"fedcal {told['versions']['fedcal']}",
    }


def _guideline(one: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """A table of items in the order of their numbers."""
    items = {key: (ask, text.format_map(words)) for key, (ask, text) in one["filled"].items()}
    for kind in ("author", "not of an evaluation"):
        for line in one[kind].split(";"):
            key, ask = line.split(maxsplit=1)
            items[key] = (ask, kind)
    order = sorted(items, key=lambda key: (int(re.sub(r"\D", "", key)), key))
    rows = [(key, *items[key]) for key in order]
    return {
        "title": one["title"],
        "table": TextTable(("item", "what", "here"), rows, left=(0, 1, 2)),
    }
