"""The records of a prepared site."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.clients.site.prepared import Prepared, check_answers, count_files
from fedcal.clients.site.records.job_facts import JobFacts, Limits, facts_of, in_text, spent_in_all
from fedcal.clients.site.records.records import SiteRecords
from fedcal.clients.site.records.records_file import RECEIPTS
from fedcal.core.checks import read
from fedcal.core.errors import InputError
from fedcal.core.types import Words
from fedcal.privacy.agreement import context_of, job_digest
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.request import Request
from fedcal.storage.atomic import whole_file

RECORDS = "records.sqlite"
"""The file in a site's folder."""

LIFETIME_S = 30 * 86400.0
"""Seconds in which a job must end, from when the site first hears of it."""


def records_in(folder: Path, limits: Limits | None = None) -> SiteRecords:
    """Open the records in a site's folder, by the files of its key that `prepare` wrote down."""
    count, before = count_files(folder)
    return SiteRecords(folder / RECORDS, limits=limits, count=count, count_before=before)


def records_of(site: Prepared) -> SiteRecords:
    """Return the site's records, within its policy's limits; expired ones are deleted.

    Raises InputError if they were put back from a backup, are not those of the site's key, or
    cannot be used; or as `check_answers`.
    """
    check_answers(site.folder)
    limits = None if site.policy is None else Limits(*site.policy.limits)
    records = records_in(site.folder, limits)
    try:
        records.expire(time.time())
    except BaseException:
        records.close()
        raise
    return records


def job_facts(fields: Mapping[str, Any], plan: Plan, server: str) -> JobFacts:
    """Return the facts to write down of a job.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    plan
        this site's own
    server
        who asks
    """
    return facts_of(plan, read(fields, "method", str), server, time.time() + LIFETIME_S)


def answer_once(
    site: Prepared,
    fields: Mapping[str, Any],
    plan: Plan,
    request: Request,
    draw: Callable[[], Words],
) -> tuple[Words, bool]:
    """Return the words of a round, drawn now or kept since the question first came.

    Parameters
    ----------
    site
        whose records have them
    fields, plan
        of the job
    request
        that the site has agreed to
    draw
        computes the contribution, (length,); called at most once in the life of a round

    Returns
    -------
    tuple[Words, bool]
        (length,) and whether they had been sent before

    Raises
    ------
    InputError
        As `SiteRecords.answer`.
    """
    context = context_of(request)
    with records_of(site) as records:
        sent, again = records.answer(
            job_digest(fields, context.run),
            job_facts(fields, plan, site.server),
            request.round,
            request.digest,
            lambda: np.asarray(draw(), "<u8").tobytes(),
            asked_once=request.query.asked_once,
        )
    return np.frombuffer(sent, "<u8").astype(np.uint64), again


def afford(site: Prepared, fields: Mapping[str, Any], plan: Plan, run: str) -> None:
    """Refuse a run that could not be booked or answered now; as `SiteRecords.afford`."""
    with records_of(site) as records:
        records.afford(job_digest(fields, run), job_facts(fields, plan, site.server))


def check_booked(site: Prepared, fields: Mapping[str, Any], run: str) -> None:
    """InputError for the result of a job that this site did not book by an answer."""
    with records_of(site) as records:
        if not records.has_booked(job_digest(fields, run)):
            raise InputError("this site has not answered in the run of this result")


def finish(site: Prepared, fields: Mapping[str, Any], run: str, plan: Plan) -> None:
    """Delete keys and answers of a run whose result has come; it is not answered again.

    Beside the result stays a receipt: the job, and what it was charged.
    """
    charge = in_text(spent_in_all([job_facts(fields, plan, site.server)]))
    job = job_digest(fields, run)
    with whole_file(site.folder / RECEIPTS.replace("*", run)) as file:
        file.write(f"{job} {charge}".encode())
    with records_of(site) as records:
        records.finish(job)
