"""What a private run promises, to whom, and on what it counts: whole sentences.

Every sentence follows from fields of the plan; `fedcal.release` states the same guarantee.
"""

from __future__ import annotations

import math

from fedcal.privacy.plan import Plan

_NEIGHBOURS = {
    "zero-out": "removing all rows of one client",
    "add-remove": "adding or removing one row",
    "replace": "replacing all rows of one client by any others",
}
_MANY_ROWS = 100_000
"""Rows of a client beyond which nobody need be told that its sum may be saturated."""
PUBLIC = "The number of clients, the method and its parameters are taken as public."
_SEEDED = (
    "Seeded noise protects nobody who knows the seed, and the seed stands wherever the "
    "configuration is written (config.toml, result.json): this is a simulation."
)
_SYSTEM = (
    "Noise{} from the operating system's generator. The error of a draw (total variation 2^-60 a "
    "value) is counted in delta; what its time may tell is not."
)
_PROTOCOL = (
    "The server is taken to follow the protocol: its question names the noise that a client adds, "
    "and a server that names less, or asks again, is not covered."
)
_SIMULATED_MASKS = (
    "Secure aggregation is simulated here: its masks follow from the seed, so whoever knows that "
    "sees each client's contribution with its share of the noise only."
)


def promise(plan: Plan, masks: bool, rows_per_client: float | None) -> list[str]:
    """What is promised to whom.

    Parameters
    ----------
    plan : a private one
    masks : whether the server sees masked contributions
    rows_per_client : the nominal number that set the clip bound, if one did
    """
    said = [_guarantee(plan), *_against_whom(plan, masks)]
    if plan.unit == "example":
        less = " and more delta" if plan.delta else ""
        said.append(
            "The epsilon is for one row. A client, or a person, with m rows has m times the "
            f"epsilon{less}: it does not protect whole clients."
        )
        if plan.rows_that_fit is not None and plan.rows_that_fit < _MANY_ROWS:
            said.append(
                f"A client's sum has room for {plan.rows_that_fit:,} rows, each at its bound; "
                "beyond that it is saturated, so that the sum is too small and no row is told."
            )
    said += [_source(plan), PUBLIC]
    if rows_per_client is not None:
        said.append(_nominal(plan, rows_per_client))
    if plan.sampling_rate < 1:
        said.append(_sampling(plan, masks))
    if plan.delta >= 1 / plan.clients:
        said.append(large_delta(plan))
    return said


def in_short(trust: str, unit: str, adjacency: str, masks: bool, quorum: float) -> str:
    """What runs under one trust model promise for one unit, in a sentence for a table of them.

    Parameters
    ----------
    trust, unit, adjacency : as in `Plan`
    masks : whether the server sees masked contributions
    quorum : share of the clients that must answer under trust `distributed`
    """
    exact = "exact sums" if masks else "each client's contribution, and so exact sums,"
    honest = f"where {100 * quorum:g} % of the clients answer and are honest"
    holds = {
        "central": f"against everyone but the server, which sees {exact} and is trusted to "
        "forget them",
        "distributed": f"against everyone, the server too, {honest} and the secure aggregation "
        "shows nothing but sums",
        "local": "against everyone, the server too, whatever other clients do",
    }[trust]
    if trust == "distributed" and not masks:
        holds = f"against everyone but the server (no masks), {honest}"
    rows = ""
    if unit == "example":
        rows = "; its own client knows the row, and a client of m rows has m times the epsilon"
    return (
        f"Trust {trust}, unit {unit}: epsilon bounds what {_NEIGHBOURS[adjacency]} changes, "
        f"{holds}{rows}."
    )


def _guarantee(plan: Plan) -> str:
    if plan.trust == "local":
        one, many = "The one answer of a client is", f"All {plan.rounds} answers of a client"
    else:
        one, many = "The one release is", f"All {plan.rounds} releases"
    what = one if plan.rounds == 1 else f"{many} together are"
    odds = math.exp(plan.epsilon) if plan.epsilon < 700 else math.inf
    failing = ", without exception (delta is 0)"
    if plan.delta:
        failing = f", except with probability {plan.delta:g}"
    return (
        f"{what} ({plan.epsilon:g}, {plan.delta:g})-DP for each {plan.unit}: "
        f"{_NEIGHBOURS[plan.adjacency]} changes the odds of any outcome by a factor of at most "
        f"{odds:.4g}{failing}."
    )


def _against_whom(plan: Plan, masks: bool) -> list[str]:
    if plan.trust == "central":
        server = "the exact sums" if masks else f"{contribution(plan)}, and so the exact sums,"
        said = f"The server sees {server} and is trusted to forget them; everyone else sees "
        return [f"{said}releases only.", *_curators(plan)]
    if plan.trust == "distributed":
        return [*_shares(plan, masks), _PROTOCOL, *_curators(plan)]
    return [
        "Each client adds all of its noise before it answers: this holds against everyone, the "
        "server too, whatever other clients do and however many fail to answer.",
        _PROTOCOL,
        *_curators(plan),
    ]


def contribution(plan: Plan) -> str:
    """What a client sends, in words: where rows are clipped it has no bound of its own."""
    rows = plan.bound is not None and plan.bound.per == "row"
    return "each client's contribution" if rows else "each client's bounded contribution"


def _curators(plan: Plan) -> list[str]:
    """Who is trusted with single rows."""
    if plan.unit != "example":
        return []
    return ["It says nothing against a row's own client, which has the row and is trusted with it."]


def _shares(plan: Plan, masks: bool) -> list[str]:
    """What the guarantee of noise in shares counts on."""
    honest = (
        f"at least {plan.quorum} of the {plan.clients} clients answer and are honest (add their "
        "share of the noise and tell it to nobody)"
    )
    if plan.clients == 1:
        honest = "the one client answers and is honest (adds its noise and tells it to nobody)"
    if masks:
        said = [
            "Each client adds a share of the noise. This holds against everyone, the server too, "
            f"if the secure aggregation shows nothing but the sum and {honest}.",
            _SIMULATED_MASKS,
        ]
    else:
        said = [
            "Each client adds a share of the noise, but this run used no masks: the server sees "
            f"each client's contribution with 1/{plan.quorum} of the noise's variance, and this "
            f"does not hold against it. It holds against everyone else if {honest}.",
        ]
    spare = plan.clients - plan.quorum
    if spare:
        said.append(
            "Who knows shares is not among the honest, and each client knows its own: of "
            f"{plan.clients} clients up to {spare} in all may fail to answer or work together "
            "against the others."
        )
    elif plan.clients > 1:
        said.append(
            "Each client knows its own share: with a quorum of all clients, against a client only "
            f"{plan.quorum - 1} of {plan.quorum} parts of the noise's variance are left. A smaller "
            "quorum leaves room for that."
        )
    said.append(
        f"A round with fewer than {plan.quorum} answers is not released: dropouts never leave less "
        "noise than planned."
    )
    return said


def sets_noise(plan: Plan) -> bool:
    """Whether the noise is sized by what a nominal number of rows may add.

    It is not where single rows are clipped, or where a client sends one cell of several.
    """
    per_row = plan.bound is not None and plan.bound.per == "row"
    return not per_row and plan.mechanism != "unary"


def _nominal(plan: Plan, rows_per_client: float) -> str:
    """What the nominal number of rows tells where the simulation took it from the data."""
    does, tells = "sets the clip bound", "it and the noise scales tell"
    if not sets_noise(plan):
        does, tells = "sets no noise here", "it tells"
    return (
        f"rows_per_client = {rows_per_client:g} {does}. Unless it is given, it is rows / clients "
        f"of the simulated data: then {tells} the exact number of fit rows, which no epsilon "
        "covers. A deployment must choose it without looking."
    )


def _source(plan: Plan) -> str:
    if plan.noise_source == "seeded":
        return _SEEDED
    more = " comes"
    if plan.sampling_rate < 1:
        more = " and sampling come"
    return _SYSTEM.format(more)


def amplified(plan: Plan) -> bool:
    """Whether the epsilon counts on sampling; see the notes of `plan.make_plan`."""
    return plan.sampling_rate < 1 and plan.unit == "user" and plan.trust != "local"


def _sampling(plan: Plan, masks: bool) -> str:
    """What the epsilon counts on where not everybody takes part."""
    if not amplified(plan):
        if plan.trust == "local":
            why = "the server sees who answers"
        else:
            why = "for one row it would need that the other rows of its client change little"
        return (
            f"No amplification by sampling is claimed ({why}): the epsilon holds against who knows "
            "who took part, too."
        )
    if plan.trust == "distributed":
        return (
            "Every client answers every round and counts its rows in by a secret coin of its own: "
            "the epsilon counts on that coin, which nobody else sees, the server neither."
        )
    seen = "the server and, with masks, against sampled clients, who learn each other's names"
    return (
        "The epsilon counts on who was sampled staying secret: it does not hold against "
        f"{seen if masks else 'the server'}."
    )


def large_delta(plan: Plan) -> str:
    """Why this delta is too large."""
    return (
        f"delta = {plan.delta:g} is not below 1/clients = {1 / plan.clients:g}: publishing one "
        "random user's rows would satisfy it"
    )
