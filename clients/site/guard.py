"""What a real site checks before it answers.

A server that follows the protocol passes every check. Of one that does not, the site believes
nothing: plan and questions are made again here (`own_terms`). What was sent is kept, and sent again
word for word, by `site_records`: a second answer to a round would be a second release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.clients.answers import check_columns
from fedcal.clients.site.own_terms import own_terms
from fedcal.clients.site.prepared import Prepared
from fedcal.core.errors import InputError
from fedcal.core.shards import NO_SUBJECTS
from fedcal.privacy.agreement import Terms, TermsOfJob, context_of, own_request
from fedcal.queries.request import Request
from fedcal.training.network import need_torch, text_of

MOST_NUMBERS = 1 << 22
"""Numbers of an answer, 32 MiB of them: larger ones are refused before they are computed."""


def check(
    fields: Mapping[str, Any], request: Request, site: Prepared, terms_of_job: TermsOfJob
) -> tuple[Request, Terms]:
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
    context = context_of(request)
    _check_inputs(request.query.reads, site)
    if request.bound.length > MOST_NUMBERS:
        raise InputError(
            f"the request asks for {request.bound.length} numbers; at most {MOST_NUMBERS} are sent"
        )
    terms = own_terms(fields, context.run, site, terms_of_job)
    plan = terms.plan
    if plan.model.shared and not plan.protocol and not site.simulated:
        raise InputError(
            f"a share of the noise protects nothing alone: trust '{plan.trust}' needs secure "
            "aggregation among the sites"
        )
    own = own_request(fields, request, terms)
    site.check_policy(fields, terms, own.bound.length)
    if own.bound.per == "subject" and site.shards.subjects is None:
        raise InputError(NO_SUBJECTS)
    check_columns(site.shards, own.query)
    return own, terms


def _check_inputs(reads: tuple[int, ...] | None, site: Prepared) -> None:
    """Refuse a question about scores where there are none, or a network that is not for here."""
    if reads is None and site.shards.inputs is not None:
        raise InputError("the question is about scores, this site has rows to train on")
    if reads not in (None, own := site.shards.input_shape):
        raise InputError(
            f"the network reads inputs of shape {text_of(reads or ())}, this site's are of shape "
            f"{text_of(own)}"
        )
    if reads is not None:
        need_torch()
