"""What a real site checks before it answers.

A server that follows the protocol passes every check. Of one that does not, the site believes
nothing: plan and questions are those of the terms that it has accepted and checked (`own_terms`).
What was sent is kept, and sent again word for word, by `records`: a second answer to a round would
be a second release.
"""

from collections.abc import Mapping
from typing import Any

from fedcal.clients.answers import check_columns
from fedcal.clients.site.prepared import Prepared
from fedcal.core.checks import like, needed, same, whole
from fedcal.core.errors import InputError
from fedcal.core.shards import NO_SUBJECTS, text_of
from fedcal.privacy import agreement
from fedcal.privacy.request import RUN, Request


def own_terms(fields: Mapping[str, Any], run: str, site: Prepared) -> agreement.Terms:
    """Return the terms that this site has accepted, if a run is one of theirs.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    run
        its name (`Context.run`)

    Raises
    ------
    InputError
        If the site has accepted nothing, or the run states other facts.
    """
    like("the name of a run", run, RUN)
    terms = needed("a study that this site has accepted", site.terms, "it answers nothing else")
    terms.check_job(fields)
    return terms


MOST_NUMBERS = 1 << 22
"""Numbers of an answer, 32 MiB of them: larger ones are refused before they are computed."""


def check(
    fields: Mapping[str, Any], request: Request, site: Prepared
) -> tuple[Request, agreement.Terms]:
    """Return the request as this site may answer it, with its own noise if clients add noise.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    request
        as it came

    Returns
    -------
    tuple[Request, Terms]
        and the site's terms of the job

    Raises
    ------
    InputError
        One line that says what differs, or what the site's policy does not allow; nothing in it
        comes from a row.
    """
    context = agreement.context_of(request)
    _check_inputs(request.query.reads, site)
    whole("the length of an answer", request.bound.length, 0, MOST_NUMBERS)
    terms = own_terms(fields, context.run, site)
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
        from fedcal.training.networks import need_torch

        need_torch()
