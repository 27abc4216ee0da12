"""What a quarter has found and what to do next, in sentences, from the numbers of `study.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcal.core.printable import listed
from fedcal.evaluation.sites.verdicts import ALL, MOST, ORDER
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
    return listed(names, most=_MOST_NAMED) if many else named(names) if names else ""


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
        each = listed([f"{site} {sites[site]['words']}" for site in off], "; ", 3)
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
