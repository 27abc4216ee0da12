"""What a quarter has found and what to do next, in sentences, from the numbers of `study.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcal.core.printable import listed
from fedcal.evaluation.sites.verdicts import ALL, MOST
from fedcal.experiments.study.study_file import named

Told = Mapping[str, Any]
"""The content of `study.json`."""

_MOST_NAMED = 5


def in_words(told: Told) -> dict[str, Any]:
    """The keys of `study.json` that are sentences; a command in them is between backquotes."""
    return {"headline": _headline(told), "next": _steps(told)}


def some(names: Sequence[str]) -> str:
    """Names as a sentence has them; of many the first ones, and never "and 1 more"."""
    many = len(names) > _MOST_NAMED + 1
    return listed(names, most=_MOST_NAMED) if many else named(names) if names else ""


def faults(told: Told) -> list[str]:
    """Sites with a fault beyond chance."""
    return [site for site, one in told["sites"].items() if one["named"]]


def hidden(told: Told) -> list[str]:
    """Sites without a named fault where noise hides gaps above `MOST`."""
    return [s for s, one in told["sites"].items() if not one["named"] and one["limit"] > MOST]


def _changed(told: Told) -> dict[str, tuple[list[str], list[str]]]:
    """Earlier quarter -> sites that have changed since; those with a fault then and none now."""
    found = {}
    for name, tests in told["changes"].items():
        if all_named := [site for site, one in tests.items() if one["named"]]:
            gone = {*told["since"][name]["faults"]} - {*faults(told)}
            sites = [site for site in all_named if site] or ["all sites together"]
            found[name] = sites, [site for site in sites if site in gone]
    return found


def outcome(told: Told) -> str:
    """What is predicted, in words."""
    classes = told["classes"]
    one_of = f"its confidence in one of {len(classes)} classes"
    return f"probability of {classes[-1]}" if told["score"] == "positive" else one_of


def _headline(told: Told) -> str:
    sites, off = told["sites"], faults(told)
    said = f"No site of {len(sites)} shows a fault."
    if off:
        each = listed([f"{site} {sites[site]['words']}" for site in off], "; ", 3)
        said = f"{len(off)} of {len(sites)} sites show{'s' * (len(off) == 1)} a fault: {each}."
    if unseen := hidden(told):
        said += f" At {some(unseen)} noise hides too much to tell."
    for name, (sites, gone) in _changed(told).items():
        said += f" Calibration has changed since {name} at {some(sites)}"
        said += f": the fault at {some(gone)} is no longer found." if gone else "."
        how = told["changes"][name][ALL]["words"].partition(": ")[2]
        said += f" All sites together: {how}." if how else ""
    return said


def _steps(told: Told) -> list[str]:
    off, unseen, changed, enough = faults(told), hidden(told), _changed(told), told["enough"]
    steps = []
    if off:
        each = ", each by its own name" * (len(off) > 1)
        steps.append(
            f"Recalibrate at home at {some(off)}, with the site's own rows, which stay there"
            f"{each}: `fedcal site recalibrate --release {told['name']}/release.npz rows.csv "
            f"--site {off[0]}`"
        )
    for name, (sites, gone) in changed.items():
        if gone:
            steps.append(f"The fault of {name} at {some(gone)} is no longer found: note why.")
        if left := [site for site in sites if site not in gone]:
            which = f"at {some(left)} since {name}"
            steps.append(f"Find out what changed {which}: people, coding, practice.")
    if worse := told["calibrator"].get("worse"):
        steps.append(f"Use no common calibrator: it would widen the gap at {some(worse)}.")
    if unseen:
        takes = f"about {enough:,} {told['plural']} there" if enough else "more epsilon"
        steps.append(
            f"At {some(unseen)} wait for the next quarter, or look at the site's own exact page: "
            f"to see a gap of {100 * MOST:.0f} points in a release takes {takes}."
        )
    if told["absent"]:
        steps.append(f"Call {some(told['absent'])}, absent: this report has nothing of their rows.")
    if told["dealt"]:
        steps.append("Give the file a column client, with the site of each row, to see each site.")
    elif not off and not changed:
        steps.append("Keep the model as it is, and ask again next quarter.")
    if told["left"] < told["epsilon_release"] * (1 - 1e-9):
        steps.append("This year's budget is spent: the next release is next year's.")
    return steps
