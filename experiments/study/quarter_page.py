"""The report of a quarter, from its `study.json` alone: page 1 to act on, then the details."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core import pages, printable
from fedcal.evaluation.intervals import from_json
from fedcal.evaluation.page import heading, whole
from fedcal.evaluation.sites import effects
from fedcal.evaluation.sites.verdicts import ALL, MOST, ORDER, least_points
from fedcal.experiments.report import page
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.figures.parts import drawn
from fedcal.experiments.study.study_file import named

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


_REHEARSED = (
    "All rows were one file on one machine, no site was asked, and the noise has a known seed: "
    "this shows what a report looks like, protects nobody, and is not to be published."
)
_DEALT = (
    " The file does not name the site of a row: rows were assigned at random, so results for a "
    "site do not describe that site."
)
_PUBLISH = (
    "All of this folder: it is one private release and results computed from it. Do not publish "
    "the sites' own pages: their numbers are exact and unprotected."
)
_VERIFY = (
    "Anyone with this folder can compute it again from the release and compare it with roster and "
    "ledger, without data: `fedcal study verify`."
)
_UNVERIFIED = (
    "No party can verify that the sum is what the sites sent, nor which sites were absent: this "
    "relies on the server (signed openings are not kept)."
)
_ONE_MACHINE = (
    "The coordinator's machine runs the server: the server's operator chose the committee that "
    "opens sums. The guarantee holds for sites that have compared the digest with each other, and "
    "not with the coordinator alone."
)
_GUIDELINES = (
    "TRIPOD+AI (BMJ 2024;385:e078378), TRIPOD-Cluster (BMJ 2023;380:e071018): a run fills in what "
    "it can, the author the rest."
)


def quarter_page(quarter: Told) -> page.Page:
    """Return the page of a quarter; KeyError or TypeError for another content."""
    rehearsal, terms = quarter["rehearsal"], quarter["terms"]
    protect = terms["protect"]
    beside = "" if protect in ("subject", "record") else f"a subject is a {protect}, "
    privacy = [
        _REHEARSED if rehearsal else _UNVERIFIED,
        *([_ONE_MACHINE] if quarter["one_machine"] else []),
        f"Below, {beside}a client a site.",
        *quarter["statement"],
    ]
    curves = _curves(quarter)
    return page.Page(
        f"{quarter['study']}, {quarter['name']}",
        quarter["headline"],
        [
            page.Section("Is the model good at each site?", _first_page(quarter), "first"),
            *parts(quarter),
            *([page.Section("Reliability at each site", [curves])] if curves else []),
            pages.Text("Methods, to paste", (_methods(quarter),), "plain"),
            page.Section(
                "Privacy",
                [pages.Text("", tuple(privacy)), pages.Text("", (_VERIFY,), "plain")],
            ),
            page.Section(
                "Items of reporting guidelines",
                [pages.Table("", _GUIDES, items(quarter), _GUIDELINES)],
                "items",
            ),
        ],
        versions=quarter["versions"],
        banner=f"REHEARSAL. {_REHEARSED}{_DEALT * bool(quarter['dealt'])}" if rehearsal else "",
    )


def _first_page(quarter: Told) -> list[page.Shown]:
    """Return the page to act on: facts, a verdict for each site, what to do and to publish."""
    terms, lines = quarter["terms"], list(_verdicts(quarter, 0))
    facts = {
        "Question": quarter["question"],
        "Date": quarter["date"],
        "Model": f"{_model(quarter)}: {outcome(quarter)}",
        "Contributors": some(quarter["contributors"]),
        "Took part": some(quarter["took_part"]),
        "Absent": some(quarter["absent"]) or "none",
        "Privacy": f"epsilon {quarter['epsilon_release']:g} of each {terms['protect']}; this year "
        f"{quarter['spent']:g} of {terms['epsilon']:g} spent, {quarter['left']:g} left; until "
        f"{quarter['until']}",
    }
    more = len(lines) - MOST_LINES
    gap = "confidence minus share correct: above 0 the model is overconfident"
    if quarter["score"] == "positive":
        gap = "score minus outcome: above 0 the model predicts too high"
    note = (
        f"Gap: mean {gap}. A slope below 1: scores are too extreme. In brackets 95 % intervals, "
        f"each alone. Noise has two sources: the small number of {quarter['plural']}, and the "
        "noise added for privacy. Verdicts treat all sites as one family: in a year without "
        "faults any site is named with a probability of at most 5 %."
    )
    note = f"And {more} more: table Calibration. {note}" if more > 0 else note
    publish = "Nothing: this is a rehearsal." if quarter["rehearsal"] else _PUBLISH
    return [
        pages.Table("", _COLUMNS, lines[:MOST_LINES], note, left=(0, 1)),
        pages.Text("What to do next", tuple(quarter["next"])),
        pages.Text("What may be published", (publish,), "plain"),
        pages.Table("The study", (), [pair for pair in facts.items() if pair[1]]),
    ]


def _methods(quarter: Told) -> str:
    """Return the paragraph for the methods section of a paper."""
    words, terms = _words(quarter), quarter["terms"]
    cuts = ", ".join(f"{edge:.4g}" for edge in quarter["edges"][1:-1])
    once = "" if terms["protect"] == "record" else f"; each {terms['protect']} counted once"
    threshold, members = quarter["committee"][1], quarter["committee"][0]
    return (
        f"We evaluated the calibration of {words['model']} ({words['outcome']}) at "
        f"{words['count']} ({words['sites']}) on {quarter['date']}. Each site counted its "
        f"{quarter['plural']} by outcome and {len(quarter['edges']) - 1} ranges of the score (cuts "
        f"at {cuts}){once}. Only the sum over sites, in which each site's counts stand apart, was "
        f"opened, with noise, by secure aggregation: {threshold} of a committee of {members} sites "
        f"open a sum of at least {quarter['quorum']}. It is differentially private for each "
        f"{terms['protect']} with epsilon = {quarter['epsilon_release']:g}; the noise of a count "
        f"has a standard deviation of {quarter['noise_std']:.3g}. Each site was tested for an "
        "offset of 0 and a slope of 1 on the log odds, with the noise in the test; all sites"
        f"{' and all tests of change' * bool(quarter['changes'])} are one family (Holm) at level "
        f"{quarter['level']:.3g} for each of {terms['per_year']} releases, so that in a year "
        "without faults any site is named with a probability of at most 0.05. Intervals are 95 % "
        "intervals, each alone, with sampling and noise; those for a new site are prediction "
        f"intervals by random effects. Software: {words['fedcal']}."
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


def _curves(quarter: Told) -> Sheet | None:
    """Return a panel for each site; None without any."""
    sheets = [drawn(curve) for curve in pages.from_json(quarter["curves"])]
    panels = tuple(replace(sheet.panels[0], title=sheet.title) for sheet in sheets)
    title = f"{_model(quarter)}, {quarter['name']}: reliability at each site"
    legend = max((sheet.legend for sheet in sheets), key=len, default=())
    note = (
        "Bins of the score, each with its 95 % interval; a bin whose interval is wider than 0.5 is "
        "not shown."
    )
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
