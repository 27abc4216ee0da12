"""A prepared site that accepts the terms of a job, as `prepare` with `terms` writes them."""

import json
from pathlib import Path

from fedcal.clients.site.guard import TERMS
from fedcal.privacy.making import check_terms
from fedcal.strategies.server.job import Job


def accept(folder: Path, job: Job) -> None:
    """Write the checked terms of a job into the folder of a site."""
    terms = job.terms()
    check_terms(terms)
    (folder / TERMS).write_text(json.dumps(terms.to_plain()), "utf-8")
