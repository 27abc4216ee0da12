"""Facts of runs as sentences: what is promised to whom, who sees what, what nothing protects.

Every sentence follows from fields of the plan, whose unit, trust model and mechanism have their
own words; `fedcal.privacy.curator` states the same guarantee. Sentences about one run, about
several (a comparison) and about a record (a report) stand beside each other, so that they agree.
"""

import math
from collections.abc import Mapping
from typing import Any

from fedcal import mechanisms, units
from fedcal.privacy.noise_plan import Plan
from fedcal.trust import TRUSTS, SecAgg, TrustFacts, base

MEANINGS: dict[str, dict[str, str]] = {
    "unit": {name: unit.meaning for name, unit in units.UNITS.items()},
    "trust": {name: model.meaning for name, model in TRUSTS.items()}
    | {
        "pooled": "pooled: all rows lie in one place; no party must be trusted",
        "one-source": "one source: a client uses its own rows alone; no party must be trusted",
    },
    "mechanism": {name: law.meaning for name, law in mechanisms.MECHANISMS.items()},
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
    return name if unit is None else unit.worlds.get(name, name)


def guarantee(privacy: Mapping[str, Any]) -> str:
    """Return the privacy of a run in a few words."""
    if privacy["epsilon"] is None:
        return "no differential privacy"
    text = f"ε = {privacy['epsilon']:g}, δ = {privacy['delta']:g} for each {privacy['unit']}"
    return text.replace(" = ", "\u00a0=\u00a0")


# -- what is promised ----------------------------------------------------------------------------

_MANY_ROWS = 100_000
"""Rows of a client beyond which nobody need be told that its sum may be saturated."""
_NOISE_SOURCES = {
    "seeded": {
        "promised": "Seeded noise gives no protection against anyone who knows the seed, which "
        "stands wherever the configuration is written (config.toml, result.json): this is a "
        "simulation.",
        "not_protected": "The seed: anyone who has it can subtract the noise, and it stands "
        "wherever the configuration is written.",
        "noise": "Its source is a seeded generator (Philox): repeatable, so a simulation of "
        "protection, and no protection against anyone who knows the seed.",
    },
    "system": {
        "promised": "Noise and any sampling come from the operating system's generator. The error "
        "of a draw (total variation 2^-60 a value) is counted in delta; what its time may tell is "
        "not.",
        "not_protected": "An observer of the machine while noise is drawn: which entries of a "
        "table are read depends on the noise, and the time of a draw may reveal it.",
        "noise": "Its source is the operating system's generator, through tables of integers: a "
        "run with the same configuration gives other numbers.",
    },
}
"""Source of the noise -> what is promised, what is not protected, and the source in words."""


def promise(plan: Plan, about: TrustFacts, rows_per_client: float | None) -> list[str]:
    """Return sentences on what is promised, and to whom.

    Parameters
    ----------
    plan
        a private one
    about
        its `facts`
    rows_per_client
        the nominal number that set the clip bound, if one did
    """
    model, unit = plan.model, plan.protected
    lines = [_guarantee(plan), *model.against(about), *base.about_committee(about), *unit.curators]
    lines += unit.limits(" and more delta" if plan.delta else "")
    if plan.rows_that_fit is not None and plan.rows_that_fit < _MANY_ROWS:
        lines.append(
            f"A client's sum has room for {plan.rows_that_fit:,} {unit.plural}, each at its "
            "bound; beyond that it is saturated, so that the sum is too small and reveals no row."
        )
    lines.append(_NOISE_SOURCES[plan.federation.noise_source]["promised"])
    lines.append("The number of clients, the method and its parameters are taken as public.")
    if rows_per_client is not None:
        lines.append(_nominal(plan, rows_per_client))
    if plan.federation.sampling_rate < 1 or plan.row_rate < 1:
        lines.append(_sampling(plan, about))
    if plan.delta >= 1 / plan.clients:
        lines.append(large_delta(plan))
    return lines


def facts(plan: Plan, secure_aggregation: str, real: bool = False) -> TrustFacts:
    """Return the facts that sentences about a trust model use."""
    bounded = "" if _bounds_parts(plan) else "bounded "
    return TrustFacts(
        clients=plan.clients,
        quorum=plan.quorum,
        contribution=f"each client's {bounded}contribution",
        secure_aggregation=secure_aggregation,
        wholes=plan.noise_copies(plan.clients),
        committee=plan.committee,
        colluding=plan.federation.colluding,
        real=real,
    )


def in_short(
    trust: str,
    unit: str,
    adjacency: str,
    secure_aggregation: str,
    quorum: float,
    colluding: int = 0,
) -> str:
    """Return the promise of runs under one trust model for one unit, in a sentence for a table.

    Parameters
    ----------
    trust, unit, adjacency
        as in `Plan`
    secure_aggregation
        one of `fedcal.secure_aggregation.SECURE_AGGREGATION`
    quorum
        share of the clients that must answer where noise comes in shares
    colluding
        as in `Plan`
    """
    protected = units.UNITS[unit]
    holds = TRUSTS[trust].holds(secure_aggregation, quorum, colluding)
    return (
        f"Trust {trust}, unit {unit}: epsilon bounds what {protected.neighbours[adjacency]} "
        f"changes, {holds}{protected.in_short}."
    )


def _guarantee(plan: Plan) -> str:
    odds = math.exp(plan.epsilon) if plan.epsilon < 700 else math.inf
    failing = (
        f"except with probability {plan.delta:g}"
        if plan.delta
        else "without exception (delta is 0)"
    )
    return (
        f"{plan.model.what_spends(plan.rounds)} ({plan.epsilon:g}, {plan.delta:g})-DP for each "
        f"{plan.unit}: {plan.protected.neighbours[plan.adjacency]} changes the odds of any outcome "
        f"by a factor of at most {odds:.4g}, {failing}."
    )


def _bounds_parts(plan: Plan) -> bool:
    """Return whether parts of a contribution are clipped, so that its total has no bound."""
    return plan.bound is not None and plan.bound.per != "client"


def sets_noise(plan: Plan) -> bool:
    """Return whether the noise is scaled to the bound of a nominal number of rows.

    It is not where single rows are clipped, or where a client sends one cell of several.
    """
    return not _bounds_parts(plan) and plan.mechanism.answers != "onehot"


def _nominal(plan: Plan, rows_per_client: float) -> str:
    """Return what the nominal number of rows reveals if the simulation took it from the data."""
    sentence = (
        f"rows_per_client = {rows_per_client:g} sets the clip bound, and so the noise scales."
    )
    if plan.row_rate < 1:
        sentence = f"rows_per_client = {rows_per_client:g} sets how likely a row takes part."
    elif not sets_noise(plan):
        sentence = f"rows_per_client = {rows_per_client:g} sets no noise here."
    return (
        f"{sentence} Unless it is given, it is rows / clients of the simulated data; then it, and "
        "the values derived from it, tell the exact number of fit rows, which no epsilon covers. "
        "A deployment must choose it without looking."
    )


def _sampling(plan: Plan, about: TrustFacts) -> str:
    """Return the assumption behind the epsilon if not every client takes part."""
    if plan.amplifying_rate == 1:
        why = plan.model.why_not_amplified
        if plan.committee:  # everybody answers, whoever's rows count
            why = "" if plan.model.amplifies else f"trust {plan.trust} counts on no coin"
        if not why:
            why = f"unit {plan.unit} would need that the other rows of its client change little"
        return (
            f"No amplification by sampling is claimed ({why}): the epsilon also holds against "
            "anyone who knows who took part."
        )
    if plan.row_rate < 1:
        return (
            f"Each row takes part in a round with probability {plan.row_rate:g}, by a coin that "
            "its client draws and keeps secret: the epsilon relies on that. It does not hold "
            "against the row's own client."
        )
    return plan.model.counts_on_coins(about)


def large_delta(plan: Plan) -> str:
    """Why this delta is too large."""
    return (
        f"delta = {plan.delta:g} is not below 1/clients = {1 / plan.clients:g}: publishing one "
        "random user's rows would satisfy it"
    )


# -- who sees what, and what nothing protects ----------------------------------------------------

_SETS = "thresholds"
"""The noun of prediction sets: test rows tell other things of them than of the rest."""


_OF_TESTS = {
    "shown": (
        "Coverage, set sizes and examples of the test rows are exact and not private: for the "
        "researcher's eyes.",
        "The metrics, reliability data and probabilities of the test rows are exact and not "
        "private: for the researcher's eyes.",
    ),
    "exact": (
        "Coverage and set sizes of test rows (those after each release, too) and examples of "
        "sets are exact.",
        "Test metrics (those after each release, too), reliability data and test probabilities are "
        "exact.",
    ),
    "held out": (
        "The test rows were held out of the same clients' rows, and their results are exact "
        "and bounded by no epsilon: before, after and coverage_by (result.json), test "
        "(rounds.jsonl), page.json and report.html.",
        "The test rows were held out of the same clients' rows, and their results are exact and "
        "bounded by no epsilon: before, after and intervals, clients_change (result.json), test "
        "(rounds.jsonl), reliability.json, test_probs.npy, report.html and its figures.",
    ),
}
"""What is told of test rows -> for prediction sets, and for the rest."""


def of_tests(told: bool, what: str, noun: str) -> list[str]:
    """Return what is `shown` about test rows, `exact`, or `held out`, if there are such rows."""
    return [_OF_TESTS[what][noun != _SETS]] if told else []


AT_HOME = (
    "The values of `before`, `after` and `personal` come from exact rows of each site and its "
    "recalibration at home; no epsilon bounds them: they are for the researcher only. In a "
    "deployment they stay at the site."
)


def exact_run(
    trust: str, releases: int, about: TrustFacts, tested: bool, noun: str
) -> dict[str, Any]:
    """Return who sees what in a run without differential privacy, and what is not protected."""
    if trust == "one-source":
        sees = [("the one client", f"Its own rows and its {noun}; no party sends anything.")]
    elif trust == "pooled":
        sees = [("the place where the rows are pooled", "All rows and labels of everybody.")]
    elif releases:
        results = f"The exact sums and the {noun}."
        if tested:
            results = f"The exact sums (rounds.jsonl), exact test metrics, and the {noun}."
        sees = [
            ("another client", "All releases: the server's next question contains them."),
            ("the server", SecAgg.server_sees(about)),
            *_members(about),
            ("who reads the results", results),
        ]
    else:
        sees = [("everybody", f"Nothing about any client's rows; the {noun} learned nothing.")]
    lost = [
        *of_tests(tested, "exact", noun),
        "The number of clients, the method and its parameters are public.",
    ]
    if trust == "pooled":
        lost.insert(0, "Every row: they were collected in one place.")
    elif releases:
        any_client = "Any client: an exact sum minus those of all others is its contribution."
        if not about.summed:
            any_client = (
                "Any client: the server received its contribution unmasked, and an exact sum "
                "minus those of all others reveals it, too."
            )
        lost.insert(0, any_client)
        lost += _unpromised(about)
    table = _table(*sees, _analyst(tested))
    return {"sees": table, "not_protected": lost, "noise": "No noise is added."}


def _analyst(tested: bool) -> tuple[str, str]:
    """Return the analyst of a simulation, and what the analyst sees."""
    tests = ", the test metrics" if tested else ""
    return SIMULATES, f"Everything: all rows, the seed, every exact number{tests}."


def _members(about: TrustFacts) -> list[tuple[str, str]]:
    """Return what a member of the committee sees beyond other clients, under the protocol."""
    if about.committee is None:
        return []
    seen = "Who contributed to a round, with digests that they signed; nothing of a contribution."
    return [("a member of the committee", seen)]


def _unpromised(about: TrustFacts) -> list[str]:
    """Return what secure aggregation does not promise."""
    if about.committee is None:
        return []
    return [
        "That a round succeeds, or that its sum is true: any site can stop one, and no party can "
        "verify the numbers that a single site hides in it."
    ]


_IN_APP = (
    "The clients were those of a Flower app, under ordinary SuperNodes or simulated: without the "
    "guard, the policy and the ledger of a real site of fedcal. They run what the app sends and "
    "answer whatever its server asks, as often as it asks: that no more was asked than is said "
    "here is the server's word.",
    "The trained model, and how it was trained, are not covered: the guarantee is for the "
    "releases of this run alone.",
    "The clients' code must score each row separately: a row may not change the scores of "
    "another. The server sees at which clients it fails, or finds no rows.",
)


def with_real_sites(privacy: dict[str, Any], *, in_app: bool = False) -> None:
    """Adapt the record to real sites: no party has all rows, and Flower keeps some messages.

    Parameters
    ----------
    privacy
        record of the run; changed
    in_app
        whether they were clients of somebody else's Flower app
    """
    own = (
        "each site, at the end",
        "The result, which it judges on its own rows: those numbers stay with it.",
    )
    if in_app:
        own = ("the author of the app", "Whatever the app's code sends of a client's rows.")
        privacy["statement"] += _IN_APP
    keeps = (
        "anyone who reads the SuperLink's disk",
        "What the server sees, as long as residues of messages lie in its database.",
    )
    seen = [line for line in privacy["sees"] if line["who"] != SIMULATES]
    privacy["sees"] = [*seen, *_table(own, keeps)]


SIMULATES = "the person who runs the simulation"


def _table(*rows: tuple[str, str]) -> list[dict[str, str]]:
    return [{"who": who, "what": what} for who, what in rows]


def sees(plan: Plan, about: TrustFacts, tested: bool, noun: str) -> list[dict[str, str]]:
    """Return who sees what in a private run."""
    client = "The server's questions, which tell the earlier releases; no row of anybody else."
    if about.secure_aggregation == "masks":
        client += " The names of the clients that it shares masks with."
    client += plan.model.client_sees
    results = f"The noisy releases and the {noun}: what epsilon and delta bound."
    if tested:
        results = (
            f"The noisy releases (values in rounds.jsonl) and the {noun}: what epsilon and delta "
            "bound. Exact test metrics (result.json, test in rounds.jsonl, ...): they bound none "
            "of these."
        )
    rows = [
        ("another client", client),
        ("the server", plan.model.server_sees(about)),
        *_members(about),
        ("readers of the results", results),
        _analyst(tested),
    ]
    if (own := plan.protected.own_client) is not None:
        rows.insert(0, own)
    return _table(*rows)


def not_protected(
    plan: Plan, about: TrustFacts, rows_per_client: float | None, tested: bool, noun: str
) -> list[str]:
    """Return sentences on what the guarantee does not cover."""
    rows = []
    if rows_per_client is not None:
        reason = "rows_per_client reveals it exactly."
        if sets_noise(plan):
            reason = "rows_per_client and the noise scales (noise_std) tell it exactly."
        rows.append(
            "The number of fit rows of the simulated data, unless rows_per_client is given: "
            + reason
        )
    more = " and more delta" if plan.delta else ""
    return [
        *of_tests(tested, "exact", noun),
        "The number of clients, the method and its parameters (clip bounds, rounds) are public.",
        *rows,
        _WHO_FAILS if plan.own_rate < 1 else _WHO_ANSWERS,
        *_unpromised(about),
        plan.protected.covered(more),
        "Facts about people in general: a release may reveal them whether or not a person took "
        "part.",
        "Further runs on the same clients: each adds its epsilon to this one.",
        "Choosing: picking a method, a clip bound or a seed after looking at results is itself a "
        "release, and not counted. A ledger counts runs, not looks.",
        _NOISE_SOURCES[plan.federation.noise_source]["not_protected"],
    ]


_WHO_ANSWERS = "Who takes part, who fails to answer and when: the server and the network see it."
_WHO_FAILS = (
    "Who fails to answer and when: the server and the network see it (not whose rows a secret coin "
    "left out)."
)


def noise(plan: Plan, about: TrustFacts) -> str:
    """Return where the noise comes from and what it is added to."""
    added = plan.mechanism.sentence() or plan.model.adds(plan.mechanism.noise, about)
    return f"{added}. {_NOISE_SOURCES[plan.federation.noise_source]['noise']}"
