"""What a real site does in the protocol of secure aggregation, message by message.

Each message is answered by a process of its own: all that must be remembered is in the site's
records. What is refused, and why, is in the site's log; the server learns the class of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedcal.clients.site.party import Party
from fedcal.clients.site.prepared import Prepared
from fedcal.clients.site.records.site_records import job_facts, records_of
from fedcal.core.checks import read
from fedcal.core.errors import InputError
from fedcal.core.types import Words
from fedcal.privacy.agreement import job_digest, under_protocol
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.request import Request
from fedcal.secure_aggregation.roster import Roster


def check_roster(fields: Mapping[str, Any], plan: Plan, roster: Roster) -> None:
    """InputError if a job is not among the sites, and by the committee, of this roster."""
    if read(fields, "roster", str) != roster.to_text():
        raise InputError("the job's federation is not the one that this site has pinned")
    own = (len(roster.committee.members), roster.committee.threshold)
    if (plan.clients, plan.committee) != (len(roster.sites), own):
        raise InputError(
            f"the job is for {plan.clients} clients and the committee {plan.committee}; the "
            f"federation has {len(roster.sites)} sites and the committee {own}"
        )


class SecureSite:
    """A real site in one job under the protocol.

    Parameters
    ----------
    site
        with a roster and a key of its own
    fields
        the run config: the job's public facts
    run
        its name, as the server says it
    plan
        the site's own of the job, which its policy allows

    Raises
    ------
    InputError
        If the job is not one under the protocol among the sites of this site's roster.
    """

    def __init__(self, site: Prepared, fields: Mapping[str, Any], run: str, plan: Plan) -> None:
        if site.roster is None or site.sign_key is None:
            raise InputError(
                "secure aggregation by protocol needs --federation, --sign-key and --policy"
            )
        if not under_protocol(fields):
            raise InputError("this job is not one under the protocol of secure aggregation")
        check_roster(fields, plan, site.roster)
        self.job, self.plan = job_digest(fields, run), plan
        self._site, self._roster, self._key = site, site.roster, site.sign_key
        self._facts = job_facts(fields, plan, site.server)

    @contextmanager
    def _party(self) -> Iterator[Party]:
        with records_of(self._site) as records:
            yield Party(self._key, self._roster, records)

    def enrol(self) -> bytes:
        """Return its key of the job."""
        with self._party() as party:
            return party.enrol(self.job, self._facts)

    def answer(
        self, request: Request, enrolments: list[bytes], draw: Callable[[], Words]
    ) -> tuple[bytes, bool]:
        """Return its contribution, and whether it was sent before."""
        with self._party() as party:
            return party.answer(
                *(self.job, self._facts, request.round, request.digest, enrolments, draw),
                asked_once=request.query.asked_once,
            )

    def confirm(self, number: int, headers: list[bytes], sealed: list[bytes]) -> bytes:
        """Return its signature under one sum of a round."""
        if len(headers) != len(sealed):
            raise InputError("not every contribution comes with its sealed seeds")
        with self._party() as party:
            contributions = list(zip(headers, sealed, strict=True))
            return party.confirm(self.job, number, self.plan.quorum, contributions)

    def open(self, number: int, of: str, signed: list[bytes]) -> bytes:
        """Return its pieces of that sum."""
        with self._party() as party:
            return party.open(self.job, number, of, signed)
