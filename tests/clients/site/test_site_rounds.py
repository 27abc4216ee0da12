"""Which jobs under the protocol a site takes part in: those of its own federation, as it is."""

from dataclasses import replace

import pytest

from fedcal.clients.site.process.site_app import check_roster
from fedcal.core.checks import InputError
from fedcal.core.naming import digest_of
from fedcal.privacy import Federation
from fedcal.privacy.agreement import PROTOCOL, Terms
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.strategies.server.job import Job

SITES = tuple(Member(f"site {n}", SigningKey(bytes([n]) * 32).public) for n in range(1, 7))
ROSTER = Roster("hearts", SITES[:5], Committee((0, 1, 2, 3), 3), digest_of(["healthy", "disease"]))


def of(clients: int = 5, committee: int = 4, threshold: int = 3) -> Job:
    facts = Federation(clients, 2, committee=committee, threshold=threshold)
    return Job("fedbin", facts, secure_aggregation=PROTOCOL)


def asked(job: Job, roster: str = ROSTER.to_text()) -> Terms:
    return replace(job, roster=roster).terms()


def test_a_job_is_of_all_sites_of_the_roster_and_of_its_committee():
    """The plan's noise, bound and ring are for so many: of fewer each adds too little, say."""
    check_roster(asked(of()), ROSTER)
    for another in (of(clients=6), of(clients=4), of(threshold=4), of(committee=5, threshold=4)):
        with pytest.raises(InputError, match=r"sites must be 5|committee must be \(4, 3\)"):
            check_roster(asked(another), ROSTER)
    other = replace(ROSTER, sites=SITES[1:])
    for text in (other.to_text(), ""):
        with pytest.raises(InputError, match="federation of the job is another one"):
            check_roster(asked(of(), text), ROSTER)
