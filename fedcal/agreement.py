"""A site's own plan: what it makes of a job's public facts, and whether a request agrees with it.

A site that knows the public facts of a job (`Federation.to_fields`, in the run config) need not
believe a request about its own privacy: it makes the plan again, by the very function that the
server used, and looks whether the bound, the noise and the digest are those of the request. The
seed is not needed: it is in no plan's digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.mechanisms import MECHANISMS
from fedcal.privacy.federation import Federation
from fedcal.privacy.plan import Plan, make_plan
from fedcal.queries.request import Context, Request


def plan_of(federation: Federation, request: Request) -> Plan:
    """The plan under which a federation with these public facts asks this question.

    Public, and taken from the request, are what the method chose: its question, the bound of one
    contribution, the number of rounds and, where the facts leave it open, the mechanism.

    Raises
    ------
    InputError
        If there is no such plan, or the request does not say what it is asked for.
    """
    context = _context(request)
    law = MECHANISMS[one_of("mechanism", context.mechanism, MECHANISMS)]
    return make_plan(
        federation,
        rounds=context.rounds,
        bound=request.bound,
        prefers=(law,),
        row_sums=request.query.row_sums,
        asked_once=request.query.asked_once,
        row_rate=request.row_rate,
        fine=request.query.fine,
    )


def check_request(fields: Mapping[str, Any], request: Request) -> Plan:
    """The site's own plan, if the request is one of its rounds.

    Formal guarantee: an answer to a request that passes has the bound and, where clients add it,
    the noise that the stated epsilon and delta need; whatever the server's own plan was.

    Parameters
    ----------
    fields
        public facts of the job, as `Federation.to_fields` writes them
    request
        as it came

    Raises
    ------
    InputError
        One line that names the first thing that differs.
    """
    federation = Federation.from_fields(fields)
    context, plan = _context(request), plan_of(federation, request)
    rate = plan.sampling_rate if plan.model.asks_everyone else 1.0
    noise = plan.noise if plan.model.noise_by == "client" else None
    pairs = {
        "unit": (context.unit, plan.unit),
        "trust": (context.trust, plan.trust),
        "mechanism": (context.mechanism, plan.mechanism),
        "epsilon": (context.epsilon, plan.epsilon),
        "delta": (context.delta, plan.delta),
        "bound": (request.bound, plan.bound if plan.private else request.bound),
        "noise": (request.noise, noise),
        "ring": (request.ring, plan.ring),
        "secret coin": (request.rate, rate if noise is not None else request.rate),
        "plan": (context.plan, plan.key),
    }
    for what, (asked, own) in pairs.items():
        if asked != own:
            raise InputError(
                f"the request's {what} is not the one that follows from the job's public facts: "
                f"{str(asked)[:80]} instead of {str(own)[:80]}"
            )
    return plan


def _context(request: Request) -> Context:
    if request.context is None:
        raise InputError("the request does not say what it is asked for")
    return request.context
