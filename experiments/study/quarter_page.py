"""The report of a quarter, from its `study.json` alone: page 1 to act on, then the details."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core import pages, printable
from fedcal.evaluation.intervals import from_json
from fedcal.evaluation.page import whole
from fedcal.evaluation.sites import effects
from fedcal.evaluation.sites.verdicts import ALL, MOST, ORDER, least_points
from fedcal.experiments.report import page
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.figures.parts import drawn
from fedcal.experiments.study.study_file import named
from fedcal.metrics.names import heading

Told = Mapping[str, Any]
"""The content of `study.json`."""

_MOST_NAMED = 5


def in_words(quarter: Told) -> dict[str, Any]:
    """Return the sentences of `study.json`; commands in them are between backquotes."""
    return {"headline": _headline(quarter), "next": _steps(quarter)}


def some(names: Sequence[str]) -> str:
    """Names as a sentence has them; of many the first ones, and never "and 1 more"."""
    many = len(names) > _MOST_NAMED + 1
    return printable.listed(names, most=_MOST_NAMED) if many else named(names) if names else ""


def faults(quarter: Told) -> list[str]:
    """Sites with a fault beyond chance, those first whose scores run against outcomes."""
    off = [site for site, one in quarter["sites"].items() if one["named"]]
    return sorted(off, key=lambda site: ORDER not in quarter["sites"][site]["named"])


def hidden(quarter: Told) -> list[str]:
    """Sites without a named fault where noise hides gaps above `MOST`."""
    return [s for s, one in quarter["sites"].items() if not one["named"] and one["limit"] > MOST]


def _changed(quarter: Told) -> dict[str, tuple[list[str], list[str]]]:
    """Earlier quarter -> sites that have changed since; those with a fault then and none now."""
    changes = {}
    for name, tests in quarter["changes"].items():
        if all_named := [site for site, one in tests.items() if one["named"]]:
            gone = {*quarter["since"][name]["faults"]} - {*faults(quarter)}
            sites = [site for site in all_named if site] or ["all sites together"]
            changes[name] = sites, [site for site in sites if site in gone]
    return changes


def outcome(quarter: Told) -> str:
    """Return the predicted quantity in words."""
    classes = quarter["classes"]
    one_of = f"its confidence in one of {len(classes)} classes"
    return f"probability of {classes[-1]}" if quarter["score"] == "positive" else one_of


def _headline(quarter: Told) -> str:
    sites, off = quarter["sites"], faults(quarter)
    sentence = f"No site of {len(sites)} shows a fault."
    if off:
        each = printable.listed([f"{site} {sites[site]['words']}" for site in off], "; ", 3)
        sentence = f"{len(off)} of {len(sites)} sites show{'s' * (len(off) == 1)} a fault: {each}."
    if unseen := hidden(quarter):
        sentence += f" At {some(unseen)} noise hides too much to tell."
    for name, (sites, gone) in _changed(quarter).items():
        sentence += f" Calibration has changed since {name} at {some(sites)}"
        sentence += f": the fault at {some(gone)} is no longer found." if gone else "."
        how = quarter["changes"][name][ALL]["words"].partition(": ")[2]
        sentence += f" All sites together: {how}." if how else ""
    return sentence


def _steps(quarter: Told) -> list[str]:
    off, unseen, changed = faults(quarter), hidden(quarter), _changed(quarter)
    steps, enough = [], quarter["enough"]
    swapped = [site for site in off if ORDER in quarter["sites"][site]["named"]]
    if swapped:
        steps.append(
            f"At {some(swapped)} find out whether labels or classes are swapped, or the column is "
            "another one: do not recalibrate, a calibrator would only hide it."
        )
    if fit := off[len(swapped) :]:
        each = ", each by its own name" * (len(fit) > 1)
        steps.append(
            f"Recalibrate at home at {some(fit)}, with the site's own rows, which stay there"
            f"{each}: `fedcal site recalibrate --release {quarter['name']}/release.npz rows.csv "
            f"--site {fit[0]}`"
        )
    for name, (sites, gone) in changed.items():
        if gone:
            steps.append(f"The fault of {name} at {some(gone)} is no longer found: note why.")
        if left := [site for site in sites if site not in gone]:
            which = f"at {some(left)} since {name}"
            steps.append(f"Find out what changed {which}: people, coding, practice.")
    if unseen:
        needs = f"about {enough:,} {quarter['plural']} there" if enough else "more epsilon"
        steps.append(
            f"At {some(unseen)} wait for the next quarter, or look at the site's own exact page: "
            f"to see a gap of {100 * MOST:.0f} points in a release takes {needs}."
        )
    if quarter["absent"]:
        steps.append(
            f"Call {some(quarter['absent'])}, absent: this report has nothing of their rows."
        )
    if quarter["dealt"]:
        steps.append("Give the file a column client, with the site of each row, to see each site.")
    elif not off and not changed:
        steps.append("Keep the model unchanged, and repeat the study next quarter.")
    if quarter["left"] < quarter["epsilon_release"] * (1 - 1e-9):
        steps.append("This year's budget is spent: the next release is next year's.")
    return steps


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


def quarter_page(quarter: Told, *where: Path) -> page.Page:
    """Return the page of a quarter; KeyError or TypeError for another content."""
    terms, lines, words = quarter["terms"], list(_verdicts(quarter, 0)), _words(quarter)
    cuts = ", ".join(f"{edge:.4g}" for edge in quarter["edges"][1:-1])
    told = page.words("quarter", told=quarter, words=words, cuts=cuts, more=len(lines) - MOST_LINES)
    facts = {
        "Question": quarter["question"],
        "Date": quarter["date"],
        "Model": f"{words['model']}: {words['outcome']}",
        "Contributors": some(quarter["contributors"]),
        "Took part": some(quarter["took_part"]),
        "Absent": some(quarter["absent"]) or "none",
        "Privacy": f"epsilon {quarter['epsilon_release']:g} of each {terms['protect']}; this year "
        f"{quarter['spent']:g} of {terms['epsilon']:g} spent, {quarter['left']:g} left; until "
        f"{quarter['until']}",
    }
    first: list[page.Shown] = [
        pages.Table("", _COLUMNS, lines[:MOST_LINES], told["verdicts"][0], left=(0, 1)),
        pages.Text("What to do next", tuple(quarter["next"])),
        pages.Text("What may be published", told["publish"], "plain"),
        pages.Table("The study", (), [pair for pair in facts.items() if pair[1]]),
    ]
    privacy = [
        pages.Text("", told["privacy"]),
        pages.Text("More", tuple(quarter.get("more", ())), "fold"),
        pages.Text("", told["verify"], "plain"),
    ]
    guides = pages.Table("", _GUIDES, items(quarter), told["guidelines"][0])
    curves = _curves(quarter, told["curves"][0])
    return page.Page(
        f"{quarter['study']}, {quarter['name']}",
        quarter["headline"],
        [
            page.Section("Is the model good at each site?", first, "first"),
            *parts(quarter),
            *([page.Section("Reliability at each site", [curves])] if curves else []),
            pages.Text("Methods, to paste", told["methods"], "plain"),
            page.Section("Privacy", privacy),
            page.Section("Items of reporting guidelines", [guides], "items"),
        ],
        versions=quarter["versions"],
        banner=" ".join(told["banner"]),
    )


def _model(quarter: Told) -> str:
    model = quarter["terms"]["model"]
    return f"{model['name']}, version {model['version']}"


def _verdicts(quarter: Told, digits: int) -> Iterator[tuple[str, ...]]:
    """Yield a line for each site: faults first, then sites that noise hides."""
    for site in dict.fromkeys([*faults(quarter), *hidden(quarter), *quarter["sites"]]):
        one = quarter["sites"][site]
        yield site, one["words"], _interval(one["gap"], 100, digits), _interval(one["slope"])
    yield from ((site, "absent", "", "") for site in quarter["absent"])


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


def parts(quarter: Told) -> Iterator[pages.Part]:
    """Tables of the details, from top to bottom."""
    rows: Any = []
    for site, words, gap, slope in _verdicts(quarter, 1):
        if one := quarter["sites"].get(site):
            more = _interval(one["intercept"]), _p_value(one["adjusted"])
            rows.append((site, gap, slope, *more, least_points(one["limit"]), words))
    note = (
        "p-values are of an offset of 0 and a slope of 1 together, corrected for all tests of this "
        f'release (Holm): below {quarter["level"]:.3g} a site is named. Gaps of "seen from", '
        "rounded up, and more are found with a probability of 80 %."
    )
    columns = ("intercept", "p-value", "seen from", "verdict")
    yield pages.Table("Calibration", ("site", *_COLUMNS[2:], *columns), tuple(rows), note)
    note = "Numbers with the standard deviation of their noise; metrics with 95 % intervals."
    yield _measured("By site", quarter["metrics"], quarter, note)
    for name, one in quarter["since"].items():
        tests = quarter["changes"].get(name, {}).items()
        rows = []
        for site, c in tests:
            moved = _interval(c["gap_change"], 100, 1), _interval(c["slope_change"])
            rows.append((site or "all sites", c["words"], *moved, _p_value(c["adjusted"])))
        rows = rows or [("all sites", f"not comparable: {one['why']}", "", "", "")]
        columns = ("calibration", "gap, points: change", "slope: change", "p-value")
        yield pages.Table(f"Change since {name}", ("site", *columns), tuple(rows))
    for at, each in quarter["thresholds"].items():
        yield _measured(f"Threshold {at} of the {outcome(quarter)}", each, quarter, "")
    if quarter["groups"]:
        note = "With 95 % intervals, each alone, where there are not too few; no verdicts."
        rows = []
        for one in quarter["groups"]:
            both = _interval(one["gap"], 100, 1), _interval(one["slope"])
            rows.append((one["site"] or "all sites", one["group"], _number(one), *both))
        yield pages.Table(
            "Groups", ("site", "group", quarter["plural"], *_COLUMNS[2:]), tuple(rows), note
        )
    if quarter["next_site"]:
        yield effects.next_site_table(quarter["next_site"])


def _number(one: Told) -> str:
    return f"{max(one['rows'], 0):,.0f} ± {one['noise']:,.0f}"


def _measured(title: str, each: Told, quarter: Told, note: str) -> pages.Table:
    """Return a table of numbers and metrics of each site."""
    names = max((list(one["of"]) for one in each.values()), key=len)
    rows = []
    for site, one in each.items():
        of = ((n, "accuracy" if n in _SHARES else n, from_json(e)) for n, e in one["of"].items())
        whole_metrics = {name: whole(kind, estimate) for name, kind, estimate in of}
        rows.append((site, _number(one), *(whole_metrics.get(name, "too few") for name in names)))
    headings = [_SHARES.get(name) or heading(name, quarter["score"]) for name in names]
    return pages.Table(title, ("site", quarter["plural"], *headings), tuple(rows), note)


def _curves(quarter: Told, note: str) -> Sheet | None:
    """Return a panel for each site; None without any."""
    sheets = [drawn(curve) for curve in pages.from_json(quarter["curves"])]
    panels = tuple(replace(sheet.panels[0], title=sheet.title) for sheet in sheets)
    title = f"{_model(quarter)}, {quarter['name']}: reliability at each site"
    legend = max((sheet.legend for sheet in sheets), key=len, default=())
    return Sheet(title, min(3, len(panels)), panels, legend, note=note) if panels else None


def _words(quarter: Told) -> dict[str, str]:
    """Return the words that fill the items."""
    about, limits = quarter["about"], [one["limit"] for one in quarter["sites"].values()]
    size = f"About {sum(about.values()):,} {quarter['plural']}, as the sites stated before"
    return {
        "model": _model(quarter),
        "outcome": outcome(quarter),
        "question": quarter["question"],
        "date": quarter["date"],
        "count": f"{len(quarter['sites'])} of {len(about)} sites",
        "sites": some(list(quarter["sites"])),
        "size": size if all(about.values()) else "author",
        "groups": "Table Groups" if quarter["groups"] else "No groups were counted",
        "heterogeneity": effects.next_site_sentence(quarter["next_site"])
        if quarter["next_site"]
        else "author",
        "limits": f"{least_points(min(limits))} to {least_points(max(limits))}",
        "fedcal": f"fedcal {quarter['versions']['fedcal']}",
    }


def items(quarter: Told) -> list[tuple[str, ...]]:
    """Items of two reporting guidelines: number in each, what is asked, and what is said here."""
    text = tomllib.loads(Path(__file__).with_name("tripod.toml").read_text("utf-8"))
    asked = {key: filled.format_map(_words(quarter)) for key, filled in text["filled"].items()}
    for kind, words in (("author", "author"), ("development", "not of an evaluation")):
        asked |= dict.fromkeys(map(str.strip, text[kind].split(";")), words)
    keys = ((key.split(maxsplit=1), words) for key, words in asked.items())
    rows = [(*numbers.split("/"), what, words) for (numbers, what), words in keys]
    return sorted(rows, key=lambda row: [(int(re.sub(r"\D", "", n) or 99), n) for n in row[:2]])
