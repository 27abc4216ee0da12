"""Whether terms hold together: what a site computes before it accepts them, and believes of no one.

It is no part of the process that answers: that process compares with what was accepted.
"""

import math
from dataclasses import fields

from fedcal.core.checks import one_of, same, whole
from fedcal.core.errors import damaged
from fedcal.privacy.agreement import Terms, under_protocol
from fedcal.privacy.declared import Question
from fedcal.privacy.federation import Federation
from fedcal.privacy.making import made_again
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import QUERIES, OneHotQuery


def check_terms(terms: Terms) -> None:
    """Refuse terms that do not hold together, whoever wrote them.

    Formal guarantee of terms that pass: the plan is the one of the job's facts; its noise meets the
    stated epsilon and delta over all its rounds, for what is clipped to its bound, by this site's
    own accounting; each question may be clipped in that way, has all its parameters fixed or within
    a range, and answers of at most `Question.cells` numbers.

    Raises InputError, one line that names the first thing that differs.
    """
    plan = terms.plan
    with damaged("the terms of the job make no plan"):
        facts = Federation.from_fields({**terms.job, "seed": 0}, classes=plan.federation.classes)
        for name in facts.__dataclass_fields__:
            what, own = f"{name} of the plan, by the job's facts,", getattr(facts, name)
            same(what, getattr(plan.federation, name), own)
        own_plan = made_again(plan)
        for name in own_plan.__dataclass_fields__:
            what = "noise" if name == "mechanism" else name.replace("_", " ")
            what = f"{what} of the plan, by its own epsilon, bound, rounds and rates,"
            same(what, getattr(plan, name), getattr(own_plan, name))
        protocol = under_protocol(terms.job)
        same("committee of the plan, by the job's facts,", bool(plan.committee), protocol)
        whole("the number of questions", len(terms.questions), 1)
        for question in terms.questions:
            _check_declared(question, plan)


def _check_declared(question: Question, plan: Plan) -> None:
    """Refuse a question that leaves a parameter open, or whose answers the noise does not fit."""
    query = QUERIES[one_of("question", question.kind, sorted(QUERIES))]
    what = f"the question '{query.kind}'"
    named, own = sorted([*question.fixed, *question.moving]), sorted(f.name for f in fields(query))
    same(f"parameters of {what}", named, own)
    if not math.isinf(question.cells):
        moving = sorted({*query.cuts} & {*question.moving})
        same(f"cuts that the server chooses, of {what} with fixed cells,", moving, [])
    if plan.bound is None:
        return
    same(f"part that the bound of {what} is per", plan.bound.per, query.part(plan.unit))
    same(f"coin of {what}, which all clients answer,", query.everyone, False)
    if plan.parts > 1:
        same(f"answers of a site to {what}, in a job of parts,", query.asked_once, True)
    one_hot = plan.mechanism.answers == "onehot"
    same(f"unary encoding of {what}", one_hot, issubclass(query, OneHotQuery))
