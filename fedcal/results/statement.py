"""The privacy record of a run: the numbers of its plan, and what a template says of them.

Every sentence of `statement.txt.j2` follows from fields of the plan, of its record and of `Facts`.
`fedcal.privacy.curator` states the same guarantee.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcal import mechanisms, units
from fedcal.mechanisms.choice import unary_flip
from fedcal.privacy.noise_plan import Plan
from fedcal.results.page import render
from fedcal.trust import TRUSTS

MEANINGS: dict[str, dict[str, str]] = {
    "unit": {name: unit.meaning for name, unit in units.UNITS.items()},
    "trust": {name: model.meaning for name, model in TRUSTS.items()}
    | {
        "pooled": "pooled: all rows lie in one place; no party must be trusted",
        "one-source": "one source: a client uses its own rows alone; no party must be trusted",
    },
    "mechanism": {name: mechanism.meaning for name, mechanism in mechanisms.MECHANISMS.items()},
    "noise_source": {
        "seeded": "seeded generator: a simulation, no protection against anyone who knows the seed",
        "system": "the operating system's generator",
        "none": "none",
    },
    "secure_aggregation": {
        "none": "none: the server sees what each client sends",
        "masks": "masks, simulated: the server sees the sum of what clients send",
        "protocol": "protocol among the sites: the server sees the sum of what enough of them send",
    },
}
"""Key of a privacy record -> its values in a few words."""


def meaning(privacy: Mapping[str, Any], key: str) -> str:
    """Return a fact of a privacy record in a few words, or unchanged if it is unknown here."""
    return MEANINGS[key].get(privacy[key], str(privacy[key]))


def adjacency(privacy: Mapping[str, Any]) -> str:
    """Return which inputs are neighbours, for the record's unit."""
    unit, name = units.UNITS.get(privacy["unit"]), str(privacy["adjacency"])
    found = None if unit is None else unit.neighbours.get(name)
    return name if found is None else f"{name}: {found}"


def large_delta(plan: Plan) -> str:
    """Return why this delta is too large; "" = it is not."""
    if not plan.private or plan.delta < 1 / plan.clients:
        return ""
    return (
        f"delta = {plan.delta:g} is not below 1/clients = {1 / plan.clients:g}: publishing one "
        "random user's rows would satisfy it"
    )


def sets_noise(plan: Plan) -> bool:
    """Return whether the noise is scaled to the bound of a nominal number of rows.

    It is not where single rows are clipped, or where a client sends one cell of several.
    """
    clients = plan.bound is None or plan.bound.per == "client"
    return clients and plan.mechanism.answers != "onehot"


def sentences(**facts: Any) -> dict[str, list[str]]:
    """Return the template's lists of sentences, "statement" and "more" and of a run "sees"."""
    lists: dict[str, list[str]] = {}
    for paragraph in re.split(r"\n\s*\n", render("statement.txt.j2", **facts)):
        text = re.sub(r"\s+([.,;])(?=\s|$)", r"\1", " ".join(paragraph.split()))
        if text.startswith("# "):
            lines = lists.setdefault(text[2:], [])
        elif text:
            lines.append(text)
    return lists


@dataclass(frozen=True)
class Facts:
    """Facts beside its plan that sentences about a run depend on.

    Attributes
    ----------
    noun
        what the run yields
    tested, held_out
        whether there are test rows, of which exact numbers are published, and whether these were
        drawn from the same rows
    guarded, in_app
        whether the clients were real sites, or those of somebody else's Flower app, not those of a
        simulation
    counted
        whether a simulation counted what secure aggregation sends, and computed none of it
    rows
        the nominal number of a client's rows, None = there is none or it is not published
    untold, unused
        whether it was taken from the data and is kept secret, or was given and sets nothing
    rows_per_subject
        how often a subject counts at most
    at_home
        whether exact results of a recalibration at home are published
    partition
        the partition, if it does not keep clients' rows together; "" = it does
    """

    noun: str = "calibrator"
    tested: bool = True
    held_out: bool = False
    guarded: bool = False
    in_app: bool = False
    counted: bool = False
    rows: float | None = None
    untold: bool = False
    unused: bool = False
    rows_per_subject: int = 1
    at_home: bool = False
    partition: str = ""


def _with_sentences(record: dict[str, Any], facts: Facts, **plan: Any) -> dict[str, Any]:
    """Return the record with `statement`, `more` and `sees`."""
    real = {"real": facts.guarded or facts.in_app, "private": record["epsilon"] is not None}
    lists = sentences(kind="run", **vars(facts), **real, **record, **plan)
    sees = (line.split(": ", 1) for line in lists["sees"])
    return record | lists | {"sees": [{"who": role, "what": what} for role, what in sees]}


def without_privacy(
    trust: str,
    unit: str,
    released: str,
    facts: Facts,
    releases: int = 0,
    sums: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the record of a run without differential privacy.

    Parameters
    ----------
    trust, unit
        as in `Plan`; trust "pooled" where all rows lay in one place,
        "one-source" where a client used its own alone
    released
        what was released, in a sentence
    releases
        how many releases there were
    sums
        how contributions were added up; None = there were none
    """
    none = {"secure_aggregation": "none", "quorum": None, "committee": None, "colluding": 0}
    record = {
        "unit": unit,
        "adjacency": units.UNITS[unit].adjacency(replaces=False),
        "trust": trust,
        "epsilon": None,
        "delta": None,
        "mechanism": "none",
        "noise_std": 0.0,
        "noise_source": "none",
        "releases": releases,
        **(sums or none),
    }
    return _with_sentences(record, facts, released=released)


def of_plan(
    plan: Plan, releases: int, secure_aggregation: str, facts: Facts | None = None
) -> dict[str, Any]:
    """Return the privacy record of a federated run.

    Parameters
    ----------
    plan
        what was planned, and so what the whole run spends
    releases
        how many releases there were
    secure_aggregation
        one of `fedcal.secure_aggregation.SECURE_AGGREGATION`

    Returns
    -------
    dict
        `noise_std` is that of the released sum if all clients that are expected answer, one number
        or one for each block. `quorum` is the fewest answers that a round is released with (None
        but for trust "distributed" and the protocol of secure aggregation), `committee` the
        protocol's members and threshold (None without it), `diameter` how many times the bound a
        neighbour may change a sum by. `statement` has at most six sentences, and `more` the rest;
        `sees` says who sees what.
    """
    facts, std, federation = facts or Facts(), plan.noise_std, plan.federation
    shared = plan.private and plan.model.shared
    sums = {
        "secure_aggregation": secure_aggregation,
        "quorum": plan.quorum if shared or plan.committee else None,
        "committee": list(plan.committee) if plan.committee else None,
        "colluding": federation.colluding,
    }
    if not plan.private:
        exact = "No differential privacy: the exact sums are released."
        return without_privacy(plan.trust, plan.unit, exact, facts, releases, sums)
    record = {
        **{name: getattr(plan, name) for name in ("unit", "adjacency", "trust", "epsilon")},
        "delta": plan.delta,
        "mechanism": plan.mechanism.name,
        "noise_std": None if std is None else std[0] if len(set(std)) == 1 else list(std),
        "noise_source": federation.noise_source,
        "releases": releases,
        **sums,
        "diameter": plan.diameter,
        "noise_multiplier": plan.multiplier or None,
        "event": plan.event,
    }
    bound, most_rows = plan.bound, math.inf
    if bound is not None and bound.per != "client":
        most_rows = plan.ring.limit // math.ceil(max(bound.norms) / plan.grid)
    words = {
        **{"plan": plan, "model": plan.model, "protected": plan.protected},
        **{"clients": plan.clients, "rounds": plan.rounds},
        "odds": math.exp(plan.epsilon) if plan.epsilon < 700 else math.inf,
        "more_delta": " and more delta" if plan.delta else "",
        "too_large_delta": large_delta(plan),
        "flip": unary_flip(plan.mechanism.epsilon),
        "std_of_all": math.sqrt(plan.noise_copies(plan.clients)),
        "sampled": federation.sampling_rate < 1 or plan.row_rate < 1,
        "sets_noise": sets_noise(plan),
        "most_rows": most_rows,
    }
    return _with_sentences(record, facts, **words)
