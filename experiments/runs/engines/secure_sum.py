"""The protocol of secure aggregation among the clients of a simulation, all in this process.

Keys, signatures and messages are real; what one process protects from itself is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial

import numpy as np

from fedcal.clients.site.party import Party
from fedcal.clients.site.records.job_facts import facts_of
from fedcal.clients.site.records.records import SiteRecords
from fedcal.core.errors import InputError
from fedcal.core.types import Integers, Words
from fedcal.queries.request import Request
from fedcal.secure_aggregation.committee import Committee
from fedcal.secure_aggregation.keys import SigningKey, digest
from fedcal.secure_aggregation.roster import Member, Roster
from fedcal.strategies.method import Method
from fedcal.strategies.server.collector import Collector, enrolled


def simulated_roster(keys: list[SigningKey], committee: int, threshold: int) -> Roster:
    """Return a federation of sites with these keys, the first of which are the committee."""
    sites = tuple(Member(f"site-{k}", key.public) for k, key in enumerate(keys))
    return Roster("simulation", sites, Committee.of_first(committee, threshold))


class SecureSums:
    """The clients of one run, each with a key, records and its place in a federation.

    Parameters
    ----------
    method
        whose plan is one under the protocol
    """

    def __init__(self, method: Method) -> None:
        plan = method.plan
        if plan.committee is None:
            raise InputError("a secure sum needs a committee")
        self._job = digest("job", plan.key.encode(), method.run.encode()).hex()
        self._about = facts_of(plan, method.name, "simulation", math.inf)
        self._least = plan.quorum
        keys = [SigningKey.generate() for _ in range(plan.clients)]
        self.roster = simulated_roster(keys, *plan.committee)
        self._open = ExitStack()
        self._parties = [
            Party(key, self.roster, self._open.enter_context(SiteRecords(None))) for key in keys
        ]
        enrolments = {m: self._parties[m].enrol(self._job, self._about) for m in self._members}
        known = enrolled(self.roster, self._job, enrolments)
        self._enrolled = list(known.values())

    @property
    def _members(self) -> tuple[int, ...]:
        return self.roster.committee.members

    def close(self) -> None:
        """Forget all keys."""
        self._open.close()

    def collector(self, request: Request) -> Collector:
        """Return the collector of a round's contributions."""
        return Collector(self.roster, self._job, request)

    def contribute(
        self, collector: Collector, request: Request, sites: Integers, words: Words
    ) -> None:
        """Let clients send their vectors, (clients, length)."""
        for site, own in zip(sites.tolist(), words, strict=True):
            sent, _ = self._parties[site].answer(
                *(self._job, self._about, request.round, request.digest, self._enrolled),
                partial(np.copy, own),
            )
            collector.add(site, sent)

    def total(self, collector: Collector, request: Request, away: Collection[int]) -> Words:
        """Return the sum of the contributions, opened by the members who are present.

        Raises RoundFailed if too few are there.
        """
        number, there = request.round, [m for m in self._members if m not in away]
        collector.settle()
        to_confirm = collector.to_confirm()
        openings = {
            m: self._parties[m].confirm(self._job, number, self._least, to_confirm[m])
            for m in there
        }
        signed = collector.confirmed(openings)
        return collector.total(
            {
                m: self._parties[m].open(self._job, number, collector.digest, signed)
                for m in collector.openers
            }
        )
