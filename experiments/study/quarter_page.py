"""The report of a quarter, from `study.json` alone: page 1 to act on, and the details."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.pages import Intervals, Part, Table
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
from fedcal.experiments.study.next_steps import (
    REHEARSAL,
    Told,
    hidden_sites,
    named_sites,
    outcome,
)

MOST_LINES = 14
"""Sites in the table of page 1: those with a fault come first."""

_COLUMNS = 3
_SHARES = {
    "recall": "sensitivity, %",
    "specificity": "specificity, %",
    "precision": "precision, %",
    "flagged": "flagged, %",
}


def write_quarter_page(folder: Path, told: Told) -> Path:
    """Write `report.html` and its figures into a folder; KeyError or TypeError for other content"""
    parts = list(_parts(told))
    drawn = [_curves(told), *(part_sheet(p, p.title) for p in parts if isinstance(p, Intervals))]
    sheets = {f"curve-{k}": sheet for k, sheet in enumerate(filter(None, drawn), 1)}
    own = sections(parts, sheets=[s for s in sheets.values() if s is not drawn[0]])
    if drawn[0]:
        curves = {"title": "Reliability of each site", "many": True, "forest": False}
        own.append(curves | {"figure": figure(drawn[0], "curves"), "note": told["curves"][0]["note"]})
    facts, study = told["facts"], told["study"]
    lines = _verdicts(told)
    context = {
        "title": f"{study['name']}, {facts['name']}",
        "verdict": told["headline"],
        "versions": facts["versions"],
        "rehearsal": REHEARSAL * facts["rehearsal"],
        "facts": TextTable((), _facts(told), left=(0, 1)),
        "verdicts": TextTable(_HEAD, lines[:MOST_LINES], left=(0, 1)),
        "unlisted": _unlisted(len(lines)),
        "about_verdicts": _about(told),
        "steps": told["next"],
        "publish": " ".join(told["publish"]),
        "sections": [{"many": False, "forest": False, **section} for section in own],
        "methods": " ".join(told["methods"]),
        "guidelines": [_guideline(one, _words(told)) for one in _guidelines()],
        "statement": told["statement"],
        "held": "Whoever has this folder can compute it again from release.npz, and hold it "
        "against roster and ledger, without data: fedcal study verify.",
    }
    return write_with_figures(folder, "quarter.html.j2", context, sheets)


# -- page 1 --------------------------------------------------------------------------------------

_HEAD = ("site", "verdict", "gap, points", "slope")


def _facts(told: Told) -> list[tuple[str, str]]:
    facts, study, model = told["facts"], told["study"], told["model"]
    unit = study["protect"]
    took = listed(facts["took_part"], most=12)
    found = [
        ("Question", study["question"]),
        ("Date", facts["date"]),
        ("Model", f"{model['name']}, version {model['version']}: {outcome(told)}"),
        ("Contributors", listed(study["contributors"], most=12)),
        ("Took part", took),
        ("Took no part", listed(facts["absent"], most=12) or "nobody: all sites took part"),
        (
            "Privacy",
            f"this release cost epsilon {told['release']['epsilon']:g} of each {unit}; spent "
            f"{facts['spent']:g} of {study['epsilon_total']:g}, left {facts['left']:g}, "
            f"until {study['until']}",
        ),
    ]
    return [(name, text) for name, text in found if text]


def _verdicts(told: Told) -> list[tuple[str, ...]]:
    """A line for each site: faults first, then those that cannot tell."""
    sites = told["verdicts"]["sites"]
    first = dict.fromkeys([*named_sites(told), *hidden_sites(told), *sites])
    lines = [
        (s, sites[s]["words"], _interval(sites[s]["gap"], 100, 0), _interval(sites[s]["slope"]))
        for s in first
    ]
    return lines + [(site, "took no part", "", "") for site in told["facts"]["absent"]]


def _interval(told: Mapping[str, Any] | None, scale: float = 1, digits: int = 2) -> str:
    """`-20 (-24 to -16)`; "" where nothing is known."""
    if told is None or None in told.values():
        return ""
    value, low, high = (f"{scale * told[k]:z.{digits}f}" for k in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _unlisted(lines: int) -> str:
    more = lines - MOST_LINES
    return f"And {more} more, without a named fault: table Calibration below." if more > 0 else ""


def _about(told: Told) -> str:
    of = "score minus outcome: above 0 the model predicts too high"
    if told["study"]["score"] == "confidence":
        of = "confidence minus share correct: above 0 the model is overconfident"
    return (
        f"Gap: mean {of}. A slope below 1: scores are too extreme. In brackets 95 % intervals of "
        "each alone; verdicts are of all sites as one family, so that in a year without faults any "
        "site is named with a probability of at most 5 %."
    )


# -- details -------------------------------------------------------------------------------------


def _parts(told: Told) -> Iterator[Part]:
    yield _calibration(told)
    gaps = {s: one["gap"] for s, one in told["verdicts"]["sites"].items()}
    lines = tuple(
        (site, *(100 * gap[k] for k in ("value", "low", "high")))
        for site, gap in gaps.items()
        if gap and None not in gap.values()
    )
    if lines:
        zero = {"no gap": 0.0}
        yield Intervals("Gap of each site", "gap, points", {"95 % interval": lines}, zero)
    yield _by_site(told)
    yield from _changes(told)
    if told["calibrator"].get("sites"):
        yield replace(change_table(told["calibrator"], "site"), title=_COMMON)
    yield _own(told)
    for at, sites in told["thresholds"].items():
        yield _threshold(told, at, sites)
    if told["groups"]:
        yield _groups(told)
    if told["next_site"]:
        yield next_site.table(told["next_site"])


_COMMON = "A common calibrator: the gap of each site before and after it"


def _calibration(told: Told) -> Table:
    rows = [
        (
            site,
            one["words"],
            *(_interval(one["gap"], 100, 1), _interval(one["slope"]), _interval(one["intercept"])),
            f"{one['adjusted']:.4f}" if one["adjusted"] >= 1e-4 else "< 0.0001",
            f"{100 * one['limit']:.1f}",
        )
        for site, one in told["verdicts"]["sites"].items()
    ]
    level = told["verdicts"]["level"]
    return Table(
        "Calibration of each site",
        ("site", "verdict", "gap, points", "slope", "intercept", "p-value", "seen from, points"),
        tuple(rows),
        f"p-values are of an offset of 0 and a slope of 1 together, corrected for all tests of "
        f"this release (Holm); below {level:.3g} a site is named. Gaps from the last column on are "
        "seen with a probability of 80 %. Intervals of 95 %, each alone.",
    )


def _rows(one: Mapping[str, Any]) -> str:
    return f"{max(one['rows']['value'], 0):,.0f} ± {one['rows']['noise']:,.0f}"


def _cells(metrics: Mapping[str, Any], names: Any) -> list[str]:
    return [whole(n, from_json(metrics[n])) if n in metrics else "too few" for n in names]


def _by_site(told: Told) -> Table:
    sites, study = told["sites"], told["study"]
    names = max((one["metrics"] for one in sites.values()), key=len)
    rows = [(s or "all sites", _rows(one), *_cells(one["metrics"], names)) for s, one in sites.items()]
    columns = ("site", study["plural"], *(heading(n, study["score"]) for n in names))
    note = f"Numbers of {study['plural']} with the standard deviation of their noise; 95 % intervals."
    return Table("By site", columns, tuple(rows), note)


def _changes(told: Told) -> Iterator[Table]:
    for name, one in told["since"].items():
        title = f"Change since {name}"
        if one["why"]:
            yield Table(title, ("", ""), (("not comparable", one["why"]),))
            continue
        rows = [
            (site or "all sites", c["words"], f"{c['adjusted']:.4f}")
            for site, c in told["verdicts"]["changes"][name].items()
        ]
        note = "Of the calibration, both quarters' noise in the test; p-values as above."
        yield Table(title, ("site", "change", "p-value"), tuple(rows), note)


def _own(told: Told) -> Table:
    others = told["from_others"]
    two = any("offset" in own for own in others.values())
    rows = [
        (site, *([_interval(own["offset"])] if two else []), _interval(own["slope"]))
        for site, own in others.items()
    ]
    return Table(
        "A calibrator of its own: what the other sites say of each",
        ("site", *(["offset of the log odds"] if two else []), "slope"),
        tuple(rows),
        "The prior by which a site recalibrates at home, without its own counts; with its own rows "
        "it decides there whether that pays. An offset of 0 and a slope of 1 leave the model as it "
        "is.",
    )


def _threshold(told: Told, at: str, sites: Mapping[str, Any]) -> Table:
    rows = [
        (site or "all sites", *(whole("accuracy", from_json(own[n])) if own else "too few" for n in _SHARES))
        for site, own in sites.items()
    ]
    title = f"Threshold {at} of {outcome(told)}"
    return Table(title, ("site", *_SHARES.values()), tuple(rows), "With 95 % intervals.")


def _groups(told: Told) -> Table:
    score = told["study"]["score"]
    names = ("gap", "calibration_slope")
    rows = [
        (one["group"], one["site"] or "all sites", _rows(one), *_cells(one["metrics"], names))
        for one in told["groups"]
    ]
    columns = ("group", "site", told["study"]["plural"], *(heading(n, score) for n in names))
    note = "Estimates with 95 % intervals, each alone: no verdicts are made of groups."
    return Table("Groups", columns, tuple(rows), note)


def _curves(told: Told) -> Sheet | None:
    """A panel for each site; None without any."""
    found: Any = pages.from_json(told["curves"])
    if not found:
        return None
    sheets = {curve.title: part_sheet(curve, curve.title) for curve in found}
    panels = [replace(sheet.panels[0], title=site) for site, sheet in sheets.items()]
    legend = max((sheet.legend for sheet in sheets.values()), key=len)
    title = f"{told['model']['name']}, {told['facts']['name']}: reliability of each site"
    return Sheet(title, min(_COLUMNS, len(panels)), tuple(panels), legend)


# -- guidelines ----------------------------------------------------------------------------------


def _guidelines() -> list[dict[str, Any]]:
    text = Path(__file__).with_name("tripod.toml").read_text("utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["guideline"]
    return found


def _words(told: Told) -> dict[str, str]:
    """What items are filled with."""
    facts, study, model = told["facts"], told["study"], told["model"]
    absent = f"{listed(facts['absent'])} took no part" if facts["absent"] else "All sites took part"
    common, groups = told["calibrator"], bool(told["groups"])
    limits = [one["limit"] for one in told["verdicts"]["sites"].values()]
    size = f"About {sum(study['sites'].values()):,} {study['plural']}, as the sites said before"
    spread = next_site.sentence(told["next_site"]) if told["next_site"] else ""
    updated = "Table A common calibrator" if common.get("sites") else "None"
    return {
        "model": f"{model['name']}, version {model['version']}",
        "version": str(model["version"]),
        "outcome": outcome(told),
        "question": study["question"] or "The question is the author's",
        "date": facts["date"],
        "count": str(len(facts["took_part"])),
        "sites": listed(facts["took_part"], most=12),
        "absent": f"{len(facts['took_part'])} of {len(study['sites'])} sites; {absent}",
        "size": size if any(study["sites"].values()) else "Not said before: the author's",
        "discrimination": "AUC",
        "updating": "A common calibrator (Platt) was tried on the release; the model is unchanged",
        "updated": updated,
        "fairness": "Groups counted apart at each site" if groups else "No groups were counted",
        "subgroups": "Table Groups" if groups else "No groups were counted",
        "tables": ", Groups" * groups,
        "heterogeneity": spread or "Too few sites for random effects",
        "limits": f"gaps below {100 * min(limits):.0f} to {100 * max(limits):.0f} points go unseen",
        "fedcal": facts["versions"].get("fedcal", ""),
    }


def _guideline(one: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """A table of items in the order of their numbers."""
    items = {key: (ask, text.format_map(words)) for key, (ask, text) in one["filled"].items()}
    for kind, text in (("author", "author"), ("development", "not of an evaluation")):
        for line in one[kind].split(";"):
            key, ask = line.split(maxsplit=1)
            items[key] = (ask, text)
    order = sorted(items, key=lambda key: (int(re.sub(r"\D", "", key)), key))
    rows = [(key, *items[key]) for key in order]
    return {
        "title": f"Items of {one['title']}",
        "note": f"{one['cite']}. What the run can fill is filled; the rest is the author's.",
        "table": TextTable(("item", "what", "here"), rows, left=(0, 1, 2)),
    }
