"""Whether terms hold together: what a site computes before it accepts them, and believes of no one.

It is no part of the process that answers: that process compares with what was accepted.
"""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from fedcal.core.checks import InputError, damaged, one_of, same, whole
from fedcal.privacy.agreed_plan import AgreedPlan
from fedcal.privacy.agreement import Terms, under_protocol
from fedcal.privacy.declared import Question
from fedcal.privacy.federation import Federation
from fedcal.privacy.making import made_again
from fedcal.privacy.query import QUERIES, OneHotQuery

_LAST_DIGITS = 1e-9
"""Relative difference of floats that types of CPU make."""


def check_terms(terms: Terms) -> None:
    """Refuse terms that do not hold together, whoever wrote them.

    Formal guarantee of terms that pass: the plan is the one of the job's facts; its noise meets the
    stated epsilon and delta over all its rounds, for what is clipped to its bound, by this site's
    own accounting; each question may be clipped in that way, has all its parameters fixed or within
    a range, and answers of at most `Question.cells` numbers. Numbers of the plan may differ from
    our own by a relative 1e-9, as those of another CPU do in their last digits: so may epsilon.

    Raises InputError, one line that names the first thing that differs.
    """
    plan = terms.plan
    with damaged("the terms of the job make no plan"):
        facts = Federation.from_fields({**terms.job, "seed": 0}, classes=plan.federation.classes)
        for name in facts.__dataclass_fields__:
            what, own = f"{name} of the plan, by the job's facts,", getattr(facts, name)
            same(what, getattr(plan.federation, name), own)
        made, own_plan = plan.to_plain(), made_again(plan).to_plain()
        for name in own_plan:
            what = "noise" if name == "mechanism" else name.replace("_", " ")
            what = f"{what} of the plan, by its own epsilon, bound, rounds and rates,"
            check_alike(what, made[name], own_plan[name])
        protocol = under_protocol(terms.job)
        same("committee of the plan, by the job's facts,", bool(plan.committee), protocol)
        whole("the number of questions", len(terms.questions), 1)
        for question in terms.questions:
            _check_declared(question, plan)


def check_alike(what: str, asked: Any, own: Any) -> None:
    """Refuse plain values that differ from our own, but in the last digits of floats."""
    for at, one, another in differences("", asked, own, _LAST_DIGITS):
        where = f"{at} of the {what}" if at else f"the {what}"
        raise InputError(f"{where} must be {another!r:.80}, got {one!r:.80}")


def differences(
    where: str, old: Any, new: Any, relative: float, absolute: float = 0.0
) -> Iterator[tuple[str, Any, Any]]:
    """Yield differences of two values of JSON, beyond the last digits of other machines."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            at = f"{where}.{key or 'all'}".lstrip(".")
            yield from differences(at, old.get(key), new.get(key), relative, absolute)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (one, another) in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{where}.{k}".lstrip("."), one, another, relative, absolute)
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=relative, abs_tol=absolute):
            yield where, old, new
    elif type(old) is not type(new) or old != new:
        yield where, old, new


def _check_declared(question: Question, plan: AgreedPlan) -> None:
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
