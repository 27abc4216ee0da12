"""A quarter in sentences: what was found, what to do next, what may be published, and how it was
done. All of them follow from the numbers of `study.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcal.core.printable import listed
from fedcal.evaluation.sites.verdicts import MOST
from fedcal.experiments.study.study_file import named

Told = Mapping[str, Any]
"""The content of `study.json`."""

REHEARSAL = (
    "All rows were one file on one machine, no site was asked, and the noise has a known seed: "
    "this shows what a report looks like, protects nobody, and is not to be published."
)
_ONE_MACHINE = (
    "The coordinator's signing key lies on the machine of the server: whoever runs the server "
    "chose the committee that opens sums. The promise holds for sites that have compared the "
    "digest with each other, and not with the coordinator alone."
)
_UNVERIFIED = (
    "Nobody can verify that the sum is what the sites sent, nor who was absent: that is the word "
    "of the server (signed openings are not kept)."
)
_MOST_NAMED = 5
_PUBLISH = (
    "All of this folder: it is one private release and what follows from it. Not the sites' own "
    "pages: their numbers are exact, and nothing protects them."
)


def in_words(told: Told) -> dict[str, Any]:
    """The keys of `study.json` that are sentences; a command in them is between backquotes."""
    rehearsal = told["rehearsal"]
    return {
        "headline": _headline(told),
        "next": _steps(told),
        "publish": "Nothing: this is a rehearsal." if rehearsal else _PUBLISH,
        "methods": " ".join(_methods(told)),
        "remarks": [REHEARSAL if rehearsal else _UNVERIFIED] + [_ONE_MACHINE] * told["one_machine"],
    }


def some(names: Sequence[str]) -> str:
    """Names as a sentence has them; of many the first ones."""
    return listed(names) if len(names) > _MOST_NAMED else named(names) if names else ""


def faults(told: Told) -> list[str]:
    """Sites with a fault beyond chance."""
    return [site for site, one in told["sites"].items() if one["named"]]


def hidden(told: Told) -> list[str]:
    """Sites without a named fault where noise hides gaps above `MOST`."""
    return [s for s, one in told["sites"].items() if not one["named"] and one["limit"] > MOST]


def _changed(told: Told) -> dict[str, str]:
    """Earlier quarter -> sites that have changed since beyond chance, in words."""
    found = {
        name: [site or "all sites together" for site, one in tests.items() if one["named"]]
        for name, tests in told["changes"].items()
    }
    return {name: some(sites) for name, sites in found.items() if sites}


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
    for name, which in _changed(told).items():
        said += f" Calibration has changed since {name} at {which}."
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
    for name, which in changed.items():
        steps.append(f"Find out what changed at {which} since {name}: people, coding, practice.")
    if worse := told["calibrator"].get("worse"):
        steps.append(f"Use no common calibrator: it would widen the gap at {some(worse)}.")
    if unseen:
        takes = f"about {enough:,} {told['plural']} at a site" if enough else "more epsilon"
        steps.append(
            f"At {some(unseen)} wait for the next quarter, or look at the site's own exact page: "
            f"to see a gap of {100 * MOST:.0f} points in a release takes {takes}."
        )
    if told["absent"]:
        steps.append(f"Call {some(told['absent'])}: nothing here is of their rows.")
    if not off and not changed:
        steps.append("Keep the model as it is, and ask again next quarter.")
    if told["left"] < told["epsilon_release"] * (1 - 1e-9):
        steps.append("This year's budget is spent: the next release is next year's.")
    return steps


def _methods(told: Told) -> list[str]:
    terms, (size, threshold) = told["terms"], told["committee"]
    model, who = terms["model"], terms["protect"]
    absent = f" ({some(told['absent'])} took no part)" * bool(told["absent"])
    cuts = ", ".join(f"{edge:.4g}" for edge in told["edges"][1:-1])
    once = f"; each {who} counted once" * (who != "record")
    changes = " and all tests of change" * bool(told["changes"])
    return [
        f"We evaluated the calibration of {model['name']} (version {model['version']}; "
        f"{outcome(told)}) at {len(told['sites'])} sites{absent} on {told['date']}.",
        f"Each site counted its {told['plural']} by outcome and score (cuts at {cuts}){once}.",
        "Only the sum over sites, in which each site's counts stand apart, was opened, with noise, "
        f"by secure aggregation: {threshold} of a committee of {size} sites open a sum of at least "
        f"{told['quorum']}.",
        f"It is differentially private for each {who} with epsilon = {told['epsilon_release']:g}; "
        f"the noise of a count has a standard deviation of {told['noise_std']:.3g}.",
        "Each site was tested for an offset of 0 and a slope of 1 on the log odds, with the noise "
        f"in the test; all sites{changes} are one family (Holm) at level {told['level']:.3g} for "
        f"each of {terms['per_year']} releases, so that in a year without faults any site is named "
        "with a probability of at most 0.05.",
        "Intervals are of 95 %, each alone, with sampling and noise; those for a new site are "
        f"prediction intervals by random effects. Software: fedcal {told['versions']['fedcal']}.",
    ]
