"""A site in the protocol believes no roster but its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedcal.clients.site_rounds import check_roster
from fedcal.errors import InputError
from fedcal.privacy.federation import Federation
from fedcal.secure_aggregation.committee import Committee
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Member, Roster
from fedcal.strategies.job import Job

KEYS = [SigningKey(bytes([n]) * 32) for n in range(1, 6)]
ROSTER = Roster(
    "hearts",
    tuple(Member(f"site {n}", key.public) for n, key in enumerate(KEYS[:4])),
    Committee((0, 1, 2), 2),
)
FEDERATION = Federation(
    4, 2, epsilon=1.0, trust="distributed", committee=3, threshold=2, noise_source="system"
)


def job_of(federation: Federation = FEDERATION) -> Job:
    return Job("fedbin", federation, secure_aggregation="protocol", roster=ROSTER.to_text())


def test_a_job_is_among_the_sites_and_by_the_committee_of_the_pinned_roster() -> None:
    job = job_of()
    check_roster(job.to_fields(), job.plan, ROSTER)
    other = replace(ROSTER, sites=(*ROSTER.sites[:3], Member("site 3", KEYS[4].public)))
    with pytest.raises(InputError, match="not the one that this site has pinned"):
        check_roster(job.to_fields(), job.plan, other)
    for change in ({"clients": 5}, {"threshold": 3}, {"committee": 4, "threshold": 3}):
        more = job_of(replace(FEDERATION, **change))
        with pytest.raises(InputError, match="the federation has 4 sites and the committee"):
            check_roster(more.to_fields(), more.plan, ROSTER)
