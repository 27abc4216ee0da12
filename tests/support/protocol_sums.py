"""The protocol of secure aggregation among clients in this process, for `run_inline`'s `sum_of`.

Keys, signatures and messages are real.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import partial

import numpy as np

from fedcal.clients.answers import contribute
from fedcal.clients.site.party import Party
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.store import SiteRecords
from fedcal.core.checks import InputError
from fedcal.core.numerics import Integers, Words
from fedcal.core.shards import Shards
from fedcal.privacy.curator import OpenRound
from fedcal.run.engines.grpc import simulated_roster
from fedcal.secure_aggregation.keys import SigningKey, digest
from fedcal.strategies.method import Method
from fedcal.strategies.server.collector import Collector, enrolled


class SecureSums:
    """The clients of one run, each with a key, records and its place in a federation.

    Parameters
    ----------
    method
        whose plan is one under the protocol
    shards
        rows of its clients
    """

    def __init__(self, method: Method, shards: Shards) -> None:
        self._shards = shards
        plan = method.plan
        if plan.committee is None:
            raise InputError("a secure sum needs a committee")
        self._job = digest("job", plan.key.encode(), method.run.encode()).hex()
        plain = ("unit", "trust", "adjacency", "epsilon", "delta", "rounds")
        self._about = JobFacts(
            **{name: getattr(plan, name) for name in plain},
            **dict.fromkeys(("mechanism", "verified", "server"), "simulation"),
            job=self._job,
            method=method.name,
            expires=math.inf,
        )
        self._least = plan.quorum
        keys = [SigningKey.generate() for _ in range(plan.clients)]
        self.roster = simulated_roster(keys, *plan.committee)
        self._open = ExitStack()
        self._parties = [
            Party(key, self.roster, self._open.enter_context(SiteRecords(None))) for key in keys
        ]
        enrolments = {m: self._parties[m].enrol(self._about) for m in self._members}
        known = enrolled(self.roster, self._job, enrolments)
        self._enrolled = list(known.values())

    @property
    def _members(self) -> tuple[int, ...]:
        return self.roster.committee.members

    def close(self) -> None:
        """Forget all keys."""
        self._open.close()

    def __call__(self, asked: OpenRound, alive: Integers) -> Words:
        """Return the sum of what those alive send, opened by the members among them."""
        request = asked.request
        collector = Collector(self.roster, self._job, request)
        words = contribute(self._shards.take(alive), request, alive)
        for site, own in zip(alive.tolist(), words, strict=True):
            sent, _ = self._parties[site].answer(
                *(self._about, request.round, request.digest, self._enrolled), partial(np.copy, own)
            )
            collector.add(site, sent)
        away = set(asked.clients.tolist()) - set(alive.tolist())
        there = [m for m in self._members if m not in away]
        collector.settle()
        to_confirm = collector.to_confirm()
        openings = {
            m: self._parties[m].confirm(self._job, request.round, self._least, to_confirm[m])
            for m in there
        }
        signed = collector.confirmed(openings)
        return collector.total(
            {
                m: self._parties[m].open(self._job, request.round, collector.digest, signed)
                for m in collector.openers
            }
        )
