"""What a real site checks before it answers.

A server that follows the protocol passes every check. Of one that does not, the site believes
nothing: plan and questions are made again here (`own_terms`). What was sent is kept, and sent again
word for word, by `records`: a second answer to a round would be a second release.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedcal import __version__, mechanisms
from fedcal.clients.answers import check_columns
from fedcal.clients.site.prepared import Prepared
from fedcal.core.checks import like, read, same, whole
from fedcal.core.errors import InputError
from fedcal.core.shards import NO_SUBJECTS
from fedcal.privacy import agreement, declared, noise_plan
from fedcal.privacy.request import RUN, Request
from fedcal.storage.atomic import locked, write_whole
from fedcal.training.networks import need_torch, text_of
from fedcal.units.bounding import Bound

PLANS = "plans.json"
"""File with the plans of the last runs."""

KEPT_PLANS = 20

SYSTEM = "system"
"""`noise-source` of real sites' runs."""


def own_terms(
    fields: Mapping[str, Any], run: str, site: Prepared, terms_of_job: agreement.TermsOfJob
) -> agreement.Terms:
    """Return the site's own terms of a job, if that is about its classes and scores.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    run
        its name (`Context.run`)
    terms_of_job
        makes them

    Raises
    ------
    InputError
        If the job is about something else than this site has, there is no such plan, or the run
        was another job before.
    """
    like("the name of a run", run, RUN)
    _check_site(fields, site)
    if site.policy is not None:
        site.policy.check_method(fields)  # a plan of any other settings may take all memory
    job, path = agreement.job_digest(fields, run), site.folder / PLANS
    made_of = [job, __version__, site.shards.classes, site.shards.input]
    with locked(site.folder / f".{PLANS}.lock", "another process answers", wait=True):
        # run -> what its terms were made of, plan, questions, form and size of a result
        cached = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if run in cached:
            was, plan, questions, form, size = cached[run]
            if was == made_of:
                asked = tuple(declared.Question.from_plain(question) for question in questions)
                return agreement.Terms(plan_from(plan), asked, form, size)
            same("digest of the job's public facts, as the run began,", job, was[0])
        made = terms_of_job(fields, site.shards.classes, site.shards.input)
        cached.pop(run, None)
        questions = [question.to_plain() for question in made.questions]
        cached[run] = (made_of, plan_fields(made.plan), questions, made.form, made.result_bytes)
        last = dict(list(cached.items())[-KEPT_PLANS:])
        write_whole(path, json.dumps(last))
    return made


def _check_site(fields: Mapping[str, Any], site: Prepared) -> None:
    """InputError if a job is about other classes, or other scores, than this site has."""
    shards = site.shards
    for name, own in (("class-digest", site.digest), ("input", shards.input)):
        same(f"{name} of the run", read(fields, name, str) or own, own)
    same("number of classes", read(fields, "classes", int) or shards.classes, shards.classes)
    if not site.simulated and math.isfinite(read(fields, "epsilon", float)):
        # the plan of a seeded run has no room for the errors of the draws that are made here
        same("noise-source of the run", read(fields, "noise-source", str), SYSTEM)


def plan_fields(plan: noise_plan.Plan) -> dict[str, Any]:
    """Return a plan as plain values; `plan_from` reads them."""
    fields = asdict(plan)
    parts = fields.pop("mechanism")
    return {**fields, "law": [plan.mechanism.name, parts]}


def plan_from(values: Mapping[str, Any]) -> noise_plan.Plan:
    """Return the plan that `plan_fields` wrote."""
    plain = {key: _tupled(value) for key, value in values.items()}
    name, parts = plain.pop("law")
    mechanism: Any = mechanisms.MECHANISMS[mechanisms.FORMER.get(name, name)]
    bound = plain["bound"] and {key: _tupled(value) for key, value in plain["bound"].items()}
    made = {
        "federation": noise_plan.Federation(**plain["federation"]),
        "mechanism": mechanism(**parts),
    }
    return noise_plan.Plan(**{**plain, **made, "bound": bound and Bound(**bound)})


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


MOST_NUMBERS = 1 << 22
"""Numbers of an answer, 32 MiB of them: larger ones are refused before they are computed."""


def check(
    fields: Mapping[str, Any], request: Request, site: Prepared, terms_of_job: agreement.TermsOfJob
) -> tuple[Request, agreement.Terms]:
    """Return the request as this site may answer it, with its own noise if clients add noise.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    request
        as it came
    terms_of_job
        makes the site's own terms

    Returns
    -------
    tuple[Request, Terms]
        and the site's own terms of the job

    Raises
    ------
    InputError
        One line that says what differs, or what the site's policy does not allow; nothing in it
        comes from a row.
    """
    context = agreement.context_of(request)
    _check_inputs(request.query.reads, site)
    whole("the length of an answer", request.bound.length, 0, MOST_NUMBERS)
    terms = own_terms(fields, context.run, site, terms_of_job)
    plan = terms.plan
    if plan.model.shared and not plan.committee and not site.simulated:
        raise InputError(
            f"a share of the noise protects nothing alone: trust '{plan.trust}' needs secure "
            "aggregation among the sites"
        )
    own = agreement.own_request(fields, request, terms)
    site.check_policy(fields, terms, own.bound.length)
    if own.bound.per == "subject" and site.shards.subjects is None:
        raise InputError(NO_SUBJECTS)
    check_columns(site.shards, own.query)
    return own, terms


def _check_inputs(reads: tuple[int, ...] | None, site: Prepared) -> None:
    """Refuse a question about scores where there are none, or a network that is not for here."""
    if reads is None and site.shards.inputs is not None:
        raise InputError("the question is about scores, this site has rows to train on")
    if reads is not None:
        same("shape of the network's inputs", text_of(reads), text_of(site.shards.input_shape))
        need_torch()
