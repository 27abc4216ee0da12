"""Terms of a job: all that a site agrees to, as data, and whether a request follows from them.

The coordinator's method makes them (`fedcal.strategies.server.job.Job.terms`). A site believes
nothing in them: before it accepts them it makes the plan again from its facts, bound, rounds and
rates (`Terms.check`), and later it answers what they name and nothing else.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from fedcal.core.checks import needed, read, same, whole
from fedcal.core.errors import damaged
from fedcal.core.fields import strict
from fedcal.mechanisms import Noise
from fedcal.privacy.declared import Question, check_question
from fedcal.privacy.federation import FIELDS, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import QUERIES, OneHotQuery, Query
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


_OPEN = ("classes", "input", "class-digest")
"""Facts that a run config may leave to the sites, by 0 or ""."""


@dataclass(frozen=True)
class Terms:
    """All that a site holds the requests of a job against.

    Attributes
    ----------
    job
        the public facts, all that are `AGREED`
    plan
        what is protected, and by which noise
    questions
        what each round may ask
    form
        of the result, a key of `fedcal.storage.artifact.ARTIFACTS`
    result_bytes
        of the arrays that a result has before the first round: about as many as at the end
    """

    job: Mapping[str, Any]
    plan: Plan
    questions: tuple[Question, ...]
    form: str = ""
    result_bytes: int = 0

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for a strict JSON file, for `from_plain`; no seed is in them."""
        questions = [question.to_plain() for question in self.questions]
        own = {"job": strict(self.job), "plan": self.plan.to_plain(), "questions": questions}
        return {**vars(self), **own}

    @classmethod
    def from_plain(cls, values: Any) -> Self:
        """Return the terms of `to_plain` values, which nobody has checked; see `check`.

        Raises InputError if they are none.
        """
        with damaged("what is asked cannot be read as the terms of a job"):
            facts = {**values["job"]}
            for name in ("epsilon", "delta", "quorum", "sampling-rate"):
                facts[name] = float(facts[name])
            return cls(
                {name: read(facts, name, kind) for name, kind in AGREED.items()},
                Plan.from_plain(values["plan"]),
                tuple(Question.from_plain(question) for question in values["questions"]),
                str(values["form"]),
                whole("result-bytes", values["result_bytes"], 0),
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the terms, 64 hexadecimal digits."""
        text = json.dumps(self.to_plain(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self) -> None:
        """Refuse terms that do not hold together, whoever wrote them.

        Formal guarantee of terms that pass: the plan is the one of the job's facts; its noise meets
        the stated epsilon and delta over all its rounds, for what is clipped to its bound, by this
        site's own accounting; each question may be clipped in that way, and no parameter is open.

        Raises InputError, one line that names the first thing that differs.
        """
        from fedcal.privacy.making import made_again  # its accounting is of no use to an answer

        plan = self.plan
        with damaged("the terms of the job make no plan"):
            facts = Federation.from_fields({**self.job, "seed": 0}, classes=plan.federation.classes)
            for name in facts.__dataclass_fields__:
                what, own = f"{name} of the plan, by the job's facts,", getattr(facts, name)
                same(what, getattr(plan.federation, name), own)
            own_plan = made_again(plan)
            for name in own_plan.__dataclass_fields__:
                what = "noise" if name == "mechanism" else name.replace("_", " ")
                what = f"{what} of the plan, by its own epsilon, bound, rounds and rates,"
                same(what, getattr(plan, name), getattr(own_plan, name))
            protocol = under_protocol(self.job)
            same("committee of the plan, by the job's facts,", bool(plan.committee), protocol)
            whole("the number of questions", len(self.questions), 1)
            for question in self.questions:
                question.check_declared()
                self._check_fits(QUERIES[question.kind])

    def _check_fits(self, query: type[Query]) -> None:
        """Refuse a question whose answers the plan's noise does not protect."""
        plan, what = self.plan, f"the question '{query.kind}'"
        if plan.bound is None:
            return
        same(f"part that the bound of {what} is per", plan.bound.per, query.part(plan.unit))
        same(f"coin of {what}, which all clients answer,", query.everyone, False)
        if plan.parts > 1:
            same(f"answers of a site to {what}, in a job of parts,", query.asked_once, True)
        one_hot = plan.mechanism.answers == "onehot"
        same(f"unary encoding of {what}", one_hot, issubclass(query, OneHotQuery))

    def check_job(self, fields: Mapping[str, Any]) -> None:
        """Refuse a run config that states other public facts; it may leave those of `_OPEN` out."""
        for name, kind in AGREED.items():
            asked, own = read(fields, name, kind), self.job[name]
            if asked or name not in _OPEN:
                same(f"{name} of the run, by the accepted terms,", asked, own)


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
