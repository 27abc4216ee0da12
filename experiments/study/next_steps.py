"""A quarter in sentences: what was found, what to do next, what may be published, and how it was
done. All of them follow from the numbers of `study.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.core.printable import listed
from fedcal.experiments.study.study_file import named

Told = Mapping[str, Any]
"""The content of `study.json`."""

MOST = 0.10
"""A gap that a site should be able to see: where noise hides larger ones, more patients help."""

_MOST_NAMED = 5

REHEARSAL = (
    "A rehearsal: all rows were one file on one machine, no site was asked, and the noise has a "
    "known seed. It shows what a report looks like, protects nobody, and is not to be published."
)
ONE_MACHINE = (
    "The coordinator's signing key lies on the machine of the server: whoever runs the server "
    "chose the committee that opens sums. The promise holds for sites that have compared the "
    "digest with each other, and not with the coordinator alone."
)


def in_words(told: Told) -> dict[str, Any]:
    """The keys of `study.json` that are sentences."""
    facts = told["facts"]
    more = [REHEARSAL] * facts["rehearsal"] + [ONE_MACHINE] * facts["one_machine"]
    return {
        "headline": _headline(told),
        "next": [{"text": text, "command": command} for text, command in _steps(told)],
        "publish": _publish(told),
        "methods": _methods(told),
        "statement": [*more, *facts["statement"]],
    }


def named_sites(told: Told) -> list[str]:
    """Sites with a fault beyond chance."""
    return [site for site, one in told["verdicts"]["sites"].items() if one["named"]]


def hidden_sites(told: Told) -> list[str]:
    """Sites without a named fault where noise hides gaps above `MOST`."""
    sites = told["verdicts"]["sites"].items()
    return [site for site, one in sites if not one["named"] and one["limit"] > MOST]


def changed_sites(told: Told) -> dict[str, list[str]]:
    """Earlier quarter -> sites that have changed since beyond chance; "all sites" among them."""
    level = told["verdicts"]["level"]
    found = {
        name: [site or "all sites together" for site, c in tests.items() if c["adjusted"] <= level]
        for name, tests in told["verdicts"]["changes"].items()
    }
    return {name: sites for name, sites in found.items() if sites}


def _headline(told: Told) -> str:
    sites, off = told["verdicts"]["sites"], named_sites(told)
    hidden, changed = hidden_sites(told), changed_sites(told)
    if off:
        faults = listed([f"{s} {_verb(sites[s]['words'])}" for s in off], "; ", _MOST_NAMED)
        said = f"{len(off)} of {len(sites)} sites show a fault: {faults}."
    else:
        said = f"No site of {len(sites)} shows a fault."
    if hidden:
        said += f" At {listed(hidden, most=_MOST_NAMED)} noise hides too much to tell."
    for name, which in changed.items():
        said += f" Calibration has changed since {name} at {listed(which, most=_MOST_NAMED)}."
    return said


def _verb(words: str) -> str:
    """A verdict after the name of its site."""
    return f"is {words}" if words.startswith(("too ", "not ", "over", "under")) else words


def _steps(told: Told) -> list[tuple[str, str]]:
    """What to do next, and the command that does it; "" = none."""
    facts, study = told["facts"], told["study"]
    off, hidden, changed = named_sites(told), hidden_sites(told), changed_sites(told)
    release = f"{facts['name']}/release.npz"
    steps = []
    if off:
        each = ", each by its own name" * (len(off) > 1)
        steps.append(
            (
                f"Recalibrate at home at {listed(off, most=_MOST_NAMED)}, with the site's own "
                f"rows, which stay there{each}:",
                f"fedcal site recalibrate --release {release} rows.csv --site {off[0]}",
            )
        )
    for name, sites in changed.items():
        where = listed(sites, most=_MOST_NAMED)
        steps.append(
            (f"Find out what has changed since {name} at {where}: people, coding, practice.", "")
        )
    worse = told["calibrator"].get("worse", [])
    if off and worse:
        where = listed(worse, most=_MOST_NAMED)
        steps.append((f"Use no common calibrator: it would widen the gap at {where}.", ""))
    if hidden:
        enough, where = told["enough"], listed(hidden, most=_MOST_NAMED)
        what = "no number of rows would show it under this budget"
        if enough:
            what = f"it takes about {enough:,} {study['plural']} at a site to show it"
        steps.append(
            (
                f"Wait for the next quarter at {where}, or look at the site's own exact page: noise"
                f" may hide a gap of {100 * MOST:.0f} points there; {what}.",
                "",
            )
        )
    if facts["absent"]:
        who = listed(facts["absent"], most=_MOST_NAMED)
        steps.append((f"Call {who}: nothing here is of their rows.", ""))
    if not off and not changed:
        steps.append(("Keep the model as it is, and ask again next quarter.", ""))
    if facts["left"] < told["release"]["epsilon"] * (1 - 1e-9):
        steps.append(("The budget is spent: a further quarter needs a new study.", ""))
    return steps


def _publish(told: Told) -> list[str]:
    if told["facts"]["rehearsal"]:
        return ["Nothing: this is a rehearsal."]
    return [
        "All of this folder: it is one private release and what follows from it.",
        "Not the sites' own pages: their numbers are exact, and nothing protects them.",
    ]


def outcome(told: Told) -> str:
    """What is predicted, in words."""
    classes = told["model"]["classes"]
    if told["study"]["score"] == "positive":
        return f"the probability of {classes[-1]}"
    return f"its confidence in one of {len(classes)} classes"


def _methods(told: Told) -> list[str]:
    facts, study, release = told["facts"], told["study"], told["release"]
    model, sites = told["model"], facts["took_part"]
    size, threshold = study["committee"]
    record = study["protect"] == "record"
    absent = f" ({named(facts['absent'])} took no part)" if facts["absent"] else ""
    cuts = ", ".join(f"{edge:.3g}" for edge in release["edges"][1:-1])
    changes = ", and all tests of change since earlier quarters," * bool(
        told["verdicts"]["changes"]
    )
    return [
        f"We evaluated the calibration of {model['name']} (version {model['version']}), "
        f"{outcome(told)}, at {len(sites)} sites{absent} on {facts['date']}, in a federated study.",
        f"Each site counted its {study['plural']} by score (cuts at {cuts}) and outcome"
        + ("." if record else f"; each {study['protect']} counted once."),
        "Only the sum over sites with noise was opened, by secure aggregation: "
        f"{threshold} of a committee of {size} sites open a sum of at least {study['quorum']} "
        "contributions. The counts of each site stand apart in it.",
        f"The release is differentially private for each {study['protect']} with epsilon = "
        f"{release['epsilon']:g}; the noise of a count has a standard deviation of "
        f"{release['noise_std']:.3g}.",
        "All results were computed from this release. Each site was tested for an offset of 0 and "
        f"a slope of 1 on the log odds, with the noise in the test. All sites{changes} are one "
        f"family (Holm) at level {told['verdicts']['level']:.3g} for each of "
        f"{study['per_year']} releases: in a year without faults any site is named with a "
        "probability of at most 0.05.",
        "Intervals are of 95 %, each alone, and hold sampling and noise; those for a new site are "
        "prediction intervals by random effects.",
        f"Software: fedcal {facts['versions'].get('fedcal', '')}.",
    ]
