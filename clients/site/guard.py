"""What a real site checks before it answers.

A server that follows the protocol passes every check. Of one that does not, the site believes
nothing: plan and questions are those of the terms that it has accepted and checked (`own_terms`).
What was sent is kept, and sent again word for word, by `records`: a second answer to a round would
be a second release.
"""

from collections.abc import Mapping
from typing import Any

from fedcal.clients.answers import check_columns
from fedcal.clients.site.prepared import WITH_POLICY, Prepared
from fedcal.core.checks import InputError, like, needed, same, whole
from fedcal.core.shards import NO_SUBJECTS, text_of
from fedcal.privacy.agreement import Terms
from fedcal.privacy.request import RUN, Asked, Request

MOST_NUMBERS = 1 << 22
"""Numbers of an answer, 32 MiB of them: larger ones are refused before they are computed."""


def own_terms(fields: Mapping[str, Any], run: str, site: Prepared) -> Terms:
    """Return the terms that this site has accepted, if its policy allows them now.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    run
        its name

    Raises
    ------
    InputError
        One line: the site has accepted nothing, the run states other facts, or the policy does not
        allow it (today). Without a policy a site sums nothing up with others, for it need not trust
        them.
    """
    like("the name of a run", run, RUN)
    terms = needed("a study that this site has accepted", site.terms, "it answers nothing else")
    terms.check_job(fields)
    plan = terms.plan
    if plan.model.shared and not plan.committee and not site.simulated:
        raise InputError(
            f"a share of the noise protects nothing alone: trust '{plan.trust}' needs secure "
            "aggregation among the sites"
        )
    if plan.committee and not site.simulated:
        needed("--policy", site.policy, WITH_POLICY)
    if site.policy is not None:
        site.policy.check(terms, site.roster)
    return terms


def check(fields: Mapping[str, Any], asked: Asked, site: Prepared) -> tuple[Request, Terms]:
    """Return the request as this site answers it by its own terms, and these terms.

    Formal guarantee: what `fedcal.clients.answers.contribute` makes of the request is the answer
    to a question that the terms name for this round, clipped to their bound, with their noise and
    their coins; nothing in it but the question's moving parameters is from the server.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    asked
        as it came

    Raises
    ------
    InputError
        One line that says what differs, or what the site's policy does not allow; nothing in it
        comes from a row.
    """
    terms = own_terms(fields, asked.run, site)
    request, reads = terms.request(asked), asked.query.reads
    whole("the length of an answer", request.bound.length, 0, MOST_NUMBERS)
    if reads is None and site.shards.inputs is not None:
        raise InputError("the question is about scores, this site has rows to train on")
    if reads is not None:
        from fedcal.training.networks import need_torch

        same("shape of the network's inputs", text_of(reads), text_of(site.shards.input_shape))
        need_torch()
    if request.bound.per == "subject" and site.shards.subjects is None:
        raise InputError(NO_SUBJECTS)
    check_columns(site.shards, request.query)
    return request, terms
