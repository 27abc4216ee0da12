"""The secure sums of a run over messages: who is asked what, and in which order.

A round has three exchanges: contributions (`query.answer`), the committee's signatures under one
sum (`query.confirm`), and its pieces of that sum (`query.open`). Before the first of a run, members
of the committee tell their keys (`query.enrol`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fedcal.core.errors import RoundFailed
from fedcal.core.types import Words
from fedcal.queries.request import Request
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.atomic import whole_file
from fedcal.strategies.server.collector import Collector, enrolled

ENROL, CONFIRM, OPEN = "query.enrol", "query.confirm", "query.open"
"""Flower message types of the protocol, beside `query.answer`."""

CONFIRMED = "confirmed.json"
"""File of the sites in the sum that was last to be confirmed."""

Said = str | int | list[bytes]
Content = dict[str, dict[str, Said]]
"""Name of a record -> its values."""
Ask = Callable[[str, Mapping[int, Content], int], Mapping[int, bytes]]
"""(message type, site -> content, round) -> what sites said."""


class SecureRounds:
    """Server's side of all secure sums of a run.

    Parameters
    ----------
    roster
        the federation's
    job
        digest of the job, 64 hexadecimal digits
    run
        its name
    folder
        where it is kept whose contributions were in the sum that members were last asked to
        confirm: they confirm no other of that round, whoever restarts. None = nothing is kept
    """

    def __init__(self, roster: Roster, job: str, run: str, folder: Path | None = None) -> None:
        self.roster, self.job, self._run = roster, job, run
        self._kept = None if folder is None else folder / CONFIRMED
        self._enrolled: dict[int, bytes] = {}

    def enrol(self, there: Iterable[int], ask: Ask) -> None:
        """Learn the keys of members who are there and have not told them.

        Raises RoundFailed if fewer have than open a sum: no site would answer.
        """
        members = self.roster.committee.members
        new = [m for m in members if m in set(there) and m not in self._enrolled]
        if new:
            content: Content = {"job": {"run": self._run}}
            replies = ask(ENROL, dict.fromkeys(new, content), 0)
            self._enrolled |= enrolled(self.roster, self.job, replies)
        if len(self._enrolled) < (least := self.roster.committee.threshold):
            raise RoundFailed(
                f"{len(self._enrolled)} members of the committee take part, and {least} open a "
                "sum; no question was sent (see the others' own logs)"
            )

    @property
    def content(self) -> Content:
        """Records that are sent with each question."""
        known = [self._enrolled[member] for member in sorted(self._enrolled)]
        return {"members": {"enrolments": known}}

    def collector(self, request: Request) -> Collector:
        """Return the collector for the contributions of a round."""
        return Collector(self.roster, self.job, request)

    def settle(self, collector: Collector, number: int) -> int:
        """Decide who is in the sum of a round; how many they are.

        Raises RoundFailed if members were asked before to confirm a sum with others in it, who are
        away now.
        """
        collector.settle(self._asked_before(number))
        return len(collector.contributions)

    def _asked_before(self, number: int) -> list[int] | None:
        if self._kept is None or not self._kept.exists():
            return None
        record = json.loads(self._kept.read_text("utf-8"))
        same = (record["job"], record["round"]) == (self.job, number)
        return list(record["sites"]) if same else None

    def total(self, collector: Collector, number: int, there: Iterable[int], ask: Ask) -> Words:
        """Return the sum of a charged round's contributions, (length,) uint64.

        Raises RoundFailed if too few members confirm it, or open it.
        """
        # from here on it is for good; a round that too few answered is asked again as a new one
        if self._kept is not None:
            record = {"job": self.job, "round": number, "sites": sorted(collector.contributions)}
            with whole_file(self._kept, durable=True) as file:
                file.write(json.dumps(record).encode())
        around = set(there)
        asking = {
            member: self._about(number, headers=[h for h, _ in sent], sealed=[s for _, s in sent])
            for member, sent in collector.to_confirm().items()
            if member in around
        }
        signed = collector.confirmed(ask(CONFIRM, asking, number))
        opening = self._about(number, of=collector.digest, signed=signed)
        return collector.total(ask(OPEN, dict.fromkeys(collector.openers, opening), number))

    def _about(self, number: int, **fields: Said) -> Content:
        return {"sum": {"run": self._run, "round": number, **fields}}
