"""A site's own terms of a job: which job a request is of, and whether it follows from the terms.

A site that knows the public facts of a job (in Flower's run config) need not believe a request
about its own privacy, nor about what the job is for. It makes the method from its settings, by the
very function that the server uses, and compares what it is asked with the plan and the questions
of that. The seed is not needed: it is in no plan's digest.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedcal.core.checks import needed, read, same
from fedcal.core.kinds import Kind
from fedcal.mechanisms import Noise
from fedcal.privacy.declared import Question, check_question
from fedcal.privacy.federation import FIELDS
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import Query
from fedcal.privacy.request import Context, Request

AGREED: Mapping[str, type[Any]] = {
    "method": str,
    "settings": str,
    "secure-aggregation": str,
    "input": str,
    "class-digest": str,
    "roster": str,
    **FIELDS,
}
"""The public facts of a job that a server and its sites must agree on, and what each is. How the
server keeps its books, where it writes, how long it waits and its seed are its own affair."""

PROTOCOL = "protocol"
"""`secure-aggregation` of a job whose contributions are summed by a committee of the sites."""

_PURPOSE = "fedcal/job/1"


@dataclass(frozen=True)
class Terms:
    """All that a site holds the requests of a job against.

    Attributes
    ----------
    plan
        what is protected, and by which noise
    questions
        what each round may ask
    form
        of the result, a key of `fedcal.storage.artifact.ARTIFACTS`
    result_bytes
        of the arrays that a result has before the first round: about as many as at the end
    """

    plan: Plan
    questions: tuple[Question, ...]
    form: str = ""
    result_bytes: int = 0


TermsOfJob = Callable[[Mapping[str, Any], int, Kind], Terms]
"""(the job's fields, what `classes` = 0 and `input` = "" stand for) -> its terms. Made by the
strategies (`fedcal.strategies.server.job.terms_of_job`), which clients do not import."""


def job_digest(fields: Mapping[str, Any], run: str) -> str:
    """Return the digest of a job's public facts, by which all its participants name it.

    Both sides compute it from the run config as it came: `classes` = 0 and `input` = "" count as
    they stand, whatever the sites have.

    Parameters
    ----------
    fields
        with all that is `AGREED`; other keys are passed over
    run
        the run's name (`Context.run`): the same facts twice are two jobs

    Returns
    -------
    str
        SHA-256, 64 hexadecimal digits. Equal exactly where all facts are: floats count to their
        last bit.

    Raises
    ------
    InputError
        If a fact is missing or is of another kind.
    """
    facts = [[name, read(fields, name, kind)] for name, kind in sorted(AGREED.items())]
    text = json.dumps([_PURPOSE, run, facts], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def under_protocol(fields: Mapping[str, Any]) -> bool:
    """Return whether a job's contributions are summed by a committee of its sites."""
    return read(fields, "secure-aggregation", str) == PROTOCOL


def own_request(fields: Mapping[str, Any], request: Request, terms: Terms) -> Request:
    """Return the request as this site answers it, if it follows from the site's own terms.

    Under the protocol a request names neither noise nor coin: both are the plan's.

    Formal guarantee: an answer to what is returned is clipped to the bound and, where clients add
    it, has the noise that the stated epsilon and delta need under this site's own plan, whatever
    the server's was. It answers a question that the job's method asks in this round with the job's
    settings; parameters that follow from earlier releases lie within declared ranges, and whether
    they do follow from them cannot be seen here. Assumed is that the site answers each round once.

    Parameters
    ----------
    fields
        of the job
    request
        as it came
    terms
        this site's own, made from the fields

    Raises
    ------
    InputError
        One line that names the first thing that differs.
    """
    plan = terms.plan
    if under_protocol(fields):
        named = request.noise, request.rate, request.row_rate
        same("noise that a request under secure aggregation names", named, (None, 1.0, 1.0))
        request = replace(
            request,
            noise=client_noise(plan),
            rate=coin_rate(plan, request.query),
            row_rate=plan.row_rate,
        )
    check_request(request, terms)
    return request


def check_request(request: Request, terms: Terms) -> None:
    """Refuse a request that is not one of the rounds of these terms.

    Raises
    ------
    InputError
        One line that names the first thing that differs.
    """
    context, query, plan = context_of(request), request.query, terms.plan
    own_context = context_under(plan, context.run, context.round)
    pairs = {
        **{
            name: (getattr(context, name), getattr(own_context, name))
            for name in ("epsilon", "delta", "unit", "trust", "mechanism")
        },
        "number of rounds": (context.rounds, plan.rounds),
        "bound": (request.bound, plan.bound if plan.private else request.bound),
        "noise": (request.noise, client_noise(plan)),
        "ring": (request.ring, plan.ring),
        "secret coin": (request.rate, coin_rate(plan, query)),
        "share of rows": (request.row_rate, plan.row_rate),
        "plan": (context.plan, plan.key),
    }
    for what, (asked, own) in pairs.items():
        same(f"request's {what}, by the job's public facts,", asked, own)
    check_question(terms.questions, request.round, query)
    # Exact sums: the method bounds each question by itself, or not at all.
    if not plan.private:
        bound, own_bound = request.bound, (query.lengths(), "client")
        same(f"bound of '{query.kind}', an exact sum,", (bound.lengths, bound.per), own_bound)


def client_noise(plan: Plan) -> Noise | None:
    """Return the noise that each client adds under a plan; None = none."""
    return plan.noise if plan.model.noise_by == "client" else None


def coin_rate(plan: Plan, query: Query) -> float:
    """Return the probability that a client's rows take part in a round, by its own coin."""
    return 1.0 if query.everyone else plan.own_rate


def context_under(plan: Plan, run: str, round_number: int) -> Context:
    """Return what the requests of a round are asked for."""
    budget = plan.epsilon, plan.delta
    names = plan.unit, plan.trust, plan.mechanism.name
    return Context(run, plan.key, round_number, plan.rounds, *names, *budget)


def context_of(request: Request) -> Context:
    """Return what a request is asked for; InputError if it does not say."""
    return needed("the context of a request", request.context, "it is what a site answers for")
