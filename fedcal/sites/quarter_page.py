"""The report of a quarter, from its `study.json` alone: page 1 to act on, then the details."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedcal.core import naming, pages
from fedcal.evaluation.intervals import from_json
from fedcal.evaluation.page import in_integers
from fedcal.evaluation.sites.effects import next_site_table
from fedcal.evaluation.sites.verdicts import ALL, ONE_CLASS, ORDER, is_hidden, least_points
from fedcal.results import page
from fedcal.results.figures.diagrams import drawn
from fedcal.results.figures.drawing import Sheet
from fedcal.sites.study_file import named

Quarter = Mapping[str, Any]
"""The content of `study.json`."""

_MOST_NAMED = 5
_NO_RANKING, _WIDE = 0.6, 0.5
"""AUC below which scores hardly tell outcomes apart; interval of one that is unknown."""


def in_words(quarter: Quarter) -> dict[str, Any]:
    """Return the sentences of `study.json`; commands in them are between backquotes."""
    sites, off, unseen = quarter["sites"], faults(quarter), hidden(quarter)
    each = [f"{site} {sites[site]['words']}" for site in off]
    rows = [site for site in off if {ORDER, ONE_CLASS} & {*sites[site]["named"]}]
    swapped = [site for site in rows if ORDER in sites[site]["named"]]
    most = [100 * sites[site]["most"] for site in unseen or sites]
    gaps = " to ".join(dict.fromkeys(f"{x:.0f}" for x in (min(most), max(most))))
    text = page.words(
        "steps",
        quarter=quarter,
        some=some,
        all=ALL,
        each=naming.listed(each, "; ", 3),
        ranks=_ranks(quarter),
        off=off,
        rows=rows,
        swapped=swapped,
        fit=[site for site in off if site not in rows],
        single=[site for site, one in sites.items() if one["one_class"] and site not in swapped],
        unseen=unseen,
        crowded=hidden(quarter, "range"),
        gaps=f"a gap of {gaps} points",
        changed=_changed(quarter),
    )
    return {"headline": text["headline"][0], "next": list(text["next"])}


def _ranks(quarter: Quarter) -> str:
    """Return whether the scores of all sites together rank outcomes: yes, not, maybe."""
    auc = quarter["all"]["auc"]
    best = max(one["auc"]["low"] for one in quarter["sites"].values())
    if max(auc["high"], best) < _NO_RANKING and auc["high"] >= 0.5:
        return "not"
    return "yes" if auc["low"] > 0.5 or auc["high"] < 0.5 else "maybe"


def some(names: Sequence[str]) -> str:
    """Names as a sentence has them; of many the first ones, and never "and 1 more"."""
    many = len(names) > _MOST_NAMED + 1
    return naming.listed(names, most=_MOST_NAMED) if many else named(names)


def faults(quarter: Quarter) -> list[str]:
    """Sites with a fault beyond chance, those first whose scores run against outcomes."""
    off = [site for site, one in quarter["sites"].items() if one["named"]]
    return sorted(off, key=lambda site: ORDER not in quarter["sites"][site]["named"])


def hidden(quarter: Quarter, by: str = "noise") -> list[str]:
    """Sites without a named fault where noise, or the range of scores, hides larger ones."""
    return [site for site, one in quarter["sites"].items() if is_hidden(one, by)]


def _changed(quarter: Quarter) -> dict[str, tuple[list[str], list[str]]]:
    """Earlier quarter -> sites that have changed since; those with a fault then and none now."""
    changes = {}
    for name, tests in quarter["changes"].items():
        if all_named := [site for site, one in tests.items() if one["named"]]:
            gone = {*quarter["since"][name]["faults"]} - {*faults(quarter)}
            sites = [site for site in all_named if site] or ["all sites together"]
            changes[name] = sites, [site for site in sites if site in gone]
    return changes


_COLUMNS = ("gap, points", "slope")


def outcome(quarter: Quarter) -> str:
    """Return the predicted quantity in words."""
    classes = quarter["classes"]
    one_of = f"its confidence in one of {len(classes)} classes"
    return f"probability of {classes[-1]}" if quarter["score"] == "positive" else one_of


_EVERY = "all sites"
_SHARES = {
    "recall": "sensitivity, %",
    "specificity": "specificity, %",
    "precision": "precision, %",
    "flagged": "flagged, %",
}


def quarter_page(quarter: Quarter, *where: Path) -> page.Page:
    """Return the page of a quarter; KeyError or TypeError for another content."""
    text = page.words(
        "quarter",
        quarter=quarter,
        cuts=", ".join(f"{edge:.4g}" for edge in quarter["edges"][1:-1]),
        outcome=outcome(quarter),
        some=some,
        at_home=partial(_at_home, quarter),
    )
    facts = [tuple(fact.split(": ", 1)) for fact in text["facts"] if ": " in fact]
    first: list[page.Shown] = [
        _verdicts(quarter, *text["verdicts"]),
        pages.Text("What to do next", tuple(quarter["next"])),
        pages.Text("What may be published", text["publish"], "plain"),
        pages.Table("The study", (), facts),
    ]
    privacy = [
        pages.Text("", text["privacy"]),
        pages.Text("More", text["more"], "fold"),
        pages.Text("", text["verify"], "plain"),
    ]
    curves = _curves(quarter, text["curves"][0])
    return page.Page(
        f"{quarter['study']}, {quarter['name']}",
        quarter["headline"],
        [
            page.Section("Is the model good at each site?", first, "first"),
            *parts(quarter),
            *([page.Section("Reliability at each site", [curves])] if curves else []),
            pages.Text("Methods, to paste", text["methods"], "plain"),
            page.Section("Privacy", privacy),
        ],
        versions=quarter["versions"],
        banner=" ".join(text["banner"]),
    )


def _verdicts(quarter: Quarter, note: str) -> pages.Table:
    """Return the table of page 1: sites with a fault, sites that noise hides, others, all."""
    rate = "prevalence, %" if quarter["score"] == "positive" else "accuracy, %"
    columns = ("site", "verdict", quarter["plural"], rate, "AUC", "O:E", "gap, points")
    rows = []
    for site in (*_in_order(quarter), _EVERY):
        one = quarter["sites"].get(site, quarter["all"])
        measured, auc = quarter["metrics"][site], one["auc"]
        numbers = (
            _number(measured),
            _metric(measured, 0),
            _interval(auc) if auc["high"] - auc["low"] < _WIDE else "unknown",
            _interval(one["observed_expected"]) or "unknown",
            _interval(one["gap"], 100, 0),
        )
        rows.append((site, one.get("words", ""), *numbers))
    rows[-1:-1] = [(site, "absent", *[""] * 5) for site in quarter["absent"]]
    return pages.Table("", columns, tuple(rows), note, left=(0, 1))


def _in_order(quarter: Quarter) -> list[str]:
    return [*dict.fromkeys([*faults(quarter), *hidden(quarter), *quarter["sites"]])]


def _metric(measured: Quarter, place: int) -> str:
    """Return the rate of the outcome, or the Brier score, of a site."""
    of = [in_integers(name, from_json(e)) for name, e in measured["of"].items()]
    return of[place] if of else "too few"


def _at_home(quarter: Quarter, sentence: str) -> str:
    """Return a sentence of a run in the words of a study: sites, and those whom it protects."""
    protect, plural = quarter["terms"]["protect"], quarter["plural"]
    words = {"client": "site", "clients": "sites"}
    if protect != "record":
        words |= {"subject": protect, "subjects": plural}

    def spelled(found: re.Match[str]) -> str:
        new = words.get(found[0].lower())
        if new is None:
            return found[0]
        return new.capitalize() if found[0][0].isupper() else new

    return re.sub(r"`[^`]*`|\w+", spelled, sentence)


def _interval(estimate: Mapping[str, Any], scale: float = 1, digits: int = 2) -> str:
    """`-20 (-24 to -16)`; "" where nothing is known, and an end that is not there as infinity."""
    if estimate["value"] is None:
        return ""
    ends = {"value": 0.0, "low": "-∞", "high": "∞"}
    shown = (
        f"{scale * estimate[k]:z.{digits}f}" if estimate[k] is not None else ends[k] for k in ends
    )
    return "{} ({} to {})".format(*shown)


def _p_value(p: float) -> str:
    return f"{p:.3f}" if p >= 1e-3 else "<\xa00.001"


def parts(quarter: Quarter) -> Iterator[pages.Part]:
    """Tables of the details, from top to bottom."""
    rows: Any = []
    for site in (*_in_order(quarter), _EVERY):
        one = quarter["sites"].get(site, quarter["all"])
        tested = ("", "")
        if site != _EVERY:
            tested = _p_value(one["adjusted"]), least_points(one["limit"])
        fit = _interval(one["gap"], 100, 1), _interval(one["slope"]), _interval(one["intercept"])
        rows.append((site, *fit, *tested, _metric(quarter["metrics"][site], 1)))
    note = (
        "A slope below 1: scores are too extreme. p-values are of an offset of 0 and a slope of 1 "
        "together, corrected for all tests of this release (Holm): below "
        f'{quarter["level"]:.3g} a site is named. Gaps of "seen from", rounded up, and more are '
        "found with a probability of 80 %."
    )
    heads = ("site", *_COLUMNS, "intercept", "p-value", "seen from", "Brier score")
    yield pages.Table("Calibration", heads, tuple(rows), note)
    for name, one in quarter["since"].items():
        tests = quarter["changes"].get(name, {}).items()
        rows = []
        for site, c in tests:
            moved = _interval(c["gap_change"], 100, 1), _interval(c["slope_change"])
            rows.append((site or _EVERY, c["words"], *moved, _p_value(c["adjusted"])))
        rows = rows or [(_EVERY, f"not comparable: {one['why']}", "", "", "")]
        columns = ("calibration", "gap, points: change", "slope: change", "p-value")
        yield pages.Table(f"Change since {name}", ("site", *columns), tuple(rows))
    for at, each in quarter["thresholds"].items():
        yield _measured(f"Threshold {at} of the {outcome(quarter)}", each, quarter)
    if quarter["groups"]:
        note = "With 95 % intervals, each alone, where there are not too few; no verdicts."
        rows = []
        for one in quarter["groups"]:
            both = _interval(one["gap"], 100, 1), _interval(one["slope"])
            rows.append((one["site"] or _EVERY, one["group"], _number(one), *both))
        yield pages.Table(
            "Groups", ("site", "group", quarter["plural"], *_COLUMNS), tuple(rows), note
        )
    if quarter["next_site"]:
        yield next_site_table(quarter["next_site"])


def _number(one: Quarter) -> str:
    return f"{max(one['rows'], 0):,.0f} ± {one['noise']:,.0f}"


def _measured(title: str, each: Quarter, quarter: Quarter) -> pages.Table:
    """Return a table of numbers and metrics of each site at a threshold."""
    names = max((list(one["of"]) for one in each.values()), key=len)
    rows = []
    for site, one in each.items():
        shares = {name: in_integers("accuracy", from_json(e)) for name, e in one["of"].items()}
        rows.append((site, _number(one), *(shares.get(name, "too few") for name in names)))
    headings = [_SHARES[name] for name in names]
    return pages.Table(title, ("site", quarter["plural"], *headings), tuple(rows))


def _curves(quarter: Quarter, note: str) -> Sheet | None:
    """Return a panel for each site; None without any."""
    sheets = [drawn(curve) for curve in pages.from_json(quarter["curves"])]
    panels = tuple(replace(sheet.panels[0], title=sheet.title) for sheet in sheets)
    model = quarter["terms"]["model"]
    of = f"{model['name']}, version {model['version']}, {quarter['name']}"
    title = f"{of}: reliability at each site"
    legend = max((sheet.legend for sheet in sheets), key=len, default=())
    return Sheet(title, min(3, len(panels)), panels, legend, note=note) if panels else None
