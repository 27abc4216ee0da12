"""What a private run promises, to whom, and on what it counts: whole sentences.

Every sentence follows from fields of the plan; `fedcal.release` states the same guarantee.
"""

from __future__ import annotations

import math

from fedcal.privacy.plan import Plan
from fedcal.trust import TRUSTS, Facts
from fedcal.units import UNITS

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


def promise(plan: Plan, masks: bool, rows_per_client: float | None) -> list[str]:
    """What is promised to whom.

    Parameters
    ----------
    plan : a private one
    masks : whether the server sees masked contributions
    rows_per_client : the nominal number that set the clip bound, if one did
    """
    model, unit = plan.model, plan.protected
    said = [_guarantee(plan), *model.against(facts(plan, masks)), *unit.curators()]
    said += unit.limits(" and more delta" if plan.delta else "")
    if plan.rows_that_fit is not None and plan.rows_that_fit < _MANY_ROWS:
        said.append(
            f"A client's sum has room for {plan.rows_that_fit:,} {unit.plural}, each at its bound; "
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


def facts(plan: Plan, masks: bool) -> Facts:
    """What sentences about a trust model speak of."""
    wholes = plan.noises(plan.clients)
    return Facts(plan.clients, plan.quorum, masks, contribution(plan), wholes)


def in_short(trust: str, unit: str, adjacency: str, masks: bool, quorum: float) -> str:
    """What runs under one trust model promise for one unit, in a sentence for a table of them.

    Parameters
    ----------
    trust, unit, adjacency : as in `Plan`
    masks : whether the server sees masked contributions
    quorum : share of the clients that must answer where noise comes in shares
    """
    protected = UNITS[unit]
    return (
        f"Trust {trust}, unit {unit}: epsilon bounds what {protected.neighbours[adjacency]} "
        f"changes, {TRUSTS[trust].holds(masks, quorum)}{protected.in_short()}."
    )


def _guarantee(plan: Plan) -> str:
    odds = math.exp(plan.epsilon) if plan.epsilon < 700 else math.inf
    failing = ", without exception (delta is 0)"
    if plan.delta:
        failing = f", except with probability {plan.delta:g}"
    return (
        f"{plan.model.what_spends(plan.rounds)} ({plan.epsilon:g}, {plan.delta:g})-DP for each "
        f"{plan.unit}: {plan.protected.neighbours[plan.adjacency]} changes the odds of any outcome "
        f"by a factor of at most {odds:.4g}{failing}."
    )


def contribution(plan: Plan) -> str:
    """What a client sends, in words: where parts of it are clipped it has no bound of its own."""
    parts = plan.bound is not None and plan.bound.per != "client"
    return "each client's contribution" if parts else "each client's bounded contribution"


def sets_noise(plan: Plan) -> bool:
    """Whether the noise is sized by what a nominal number of rows may add.

    It is not where single rows are clipped, or where a client sends one cell of several.
    """
    parts = plan.bound is not None and plan.bound.per != "client"
    return not parts and plan.law.answers != "onehot"


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


def _sampling(plan: Plan, masks: bool) -> str:
    """What the epsilon counts on where not everybody takes part."""
    if not plan.amplified:
        why = plan.model.why_not_amplified or (
            f"for one {plan.protected.plural.removesuffix('s')} it would need that the other rows "
            "of its client change little"
        )
        return (
            f"No amplification by sampling is claimed ({why}): the epsilon holds against who knows "
            "who took part, too."
        )
    return plan.model.counts_on_coins(facts(plan, masks))


def large_delta(plan: Plan) -> str:
    """Why this delta is too large."""
    return (
        f"delta = {plan.delta:g} is not below 1/clients = {1 / plan.clients:g}: publishing one "
        "random user's rows would satisfy it"
    )
