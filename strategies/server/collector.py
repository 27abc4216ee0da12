"""The server's side of secure sums: what it asks, carries, and adds up.

The server is believed by nobody (`fedcal.clients.site.party`); what is checked here only keeps one
site's damaged message from spoiling the round.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from fedcal.core.checks import InputError, RoundFailed
from fedcal.core.numerics import Words
from fedcal.privacy.query import Request
from fedcal.secure_aggregation import keys, messages
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.atomic import write_file


def enrolled(roster: Roster, job: str, replies: Mapping[int, bytes]) -> dict[int, bytes]:
    """Enrolments by member, of those that sites can use; the others count as missing."""
    usable = (s for s, text in replies.items() if s in messages.exchange_keys(roster, job, [text]))
    return {site: replies[site] for site in usable}


class Collector:
    """One round's secure sum.

    Parameters
    ----------
    roster
        of the federation
    job
        digest, 64 hexadecimal digits
    request
        the round's

    Attributes
    ----------
    contributions
        site -> what it sent, of those that are in the sum
    """

    def __init__(self, roster: Roster, job: str, request: Request) -> None:
        self._roster, self._job, self._request = roster, bytes.fromhex(job), request
        self._round = f"round {request.round}"
        self.contributions: dict[int, messages.Contribution] = {}
        self._receivers: dict[int, tuple[int, ...]] = {}
        self._confirmed: dict[int, bytes] = {}

    def add(self, site: int, text: bytes) -> bool:
        """Take a site's contribution; False if it cannot be used: the site is absent then."""
        try:
            sent = messages.Contribution.from_bytes(text)
            header = messages.Header.read(sent.header)
        except InputError:
            return False
        committee = self._roster.committee
        own = (self._job, self._request.round, bytes.fromhex(self._request.digest))
        sound = (
            (header.job, header.round, header.question) == own
            and header.site == site
            and header.length == len(sent.words) == self._request.bound.length
            and header.vector == messages.vector_digest(sent.words)
            and set(header.receivers) == set(sent.sealed) <= set(committee.members)
            and len(header.commitments) == len(committee.pieces)
            and keys.usable_exchange_key(header.exchange)  # else no member confirms the sum
            and messages.header_by(self._roster.sites[site].key, sent.header)
        )
        if sound:
            self.contributions[site] = sent
            self._receivers[site] = header.receivers
        return sound

    def settle(self, only: Sequence[int] | None = None) -> None:
        """Leave in the sum those whose seeds are sealed for enough members in common.

        Those of all are, but for a round that a restarted server asks again, which sites answer as
        before: where so many members have gone or come, that of the most sites alone.

        Parameters
        ----------
        only
            who is in it in any case: members were asked to confirm that

        Raises
        ------
        RoundFailed
            If one of these is away.
        """
        if only is None:
            only = list(self._receivers)
            committee = self._roster.committee
            if len(self._common(only)) < committee.threshold:
                receivers = {site: set(members) for site, members in self._receivers.items()}
                only = max(
                    (
                        [site for site, members in receivers.items() if members.issuperset(some)]
                        for some in combinations(committee.members, committee.threshold)
                    ),
                    key=len,
                )
        if not set(only) <= set(self.contributions):
            before = "members were asked to confirm a sum before the server restarted"
            away = "not all sites in it are online; start them and resume"
            raise RoundFailed(f"{self._round}: {before}, and {away}")
        self.contributions = {site: self.contributions[site] for site in sorted(only)}

    def _common(self, sites: Iterable[int]) -> set[int]:
        """Members that all of these sites sealed their seeds for."""
        members = set(self._roster.committee.members)
        return members.intersection(*(self._receivers[site] for site in sites))

    @property
    def digest(self) -> str:
        """Digest of the sum, as members sign it."""
        headers = (sent.header for sent in self.contributions.values())
        return messages.sum_digest(self._job, self._request.round, headers).hex()

    def to_confirm(self) -> dict[int, list[tuple[bytes, bytes]]]:
        """Member -> each contributor's header and what it sealed for this member."""
        members = self._common(self.contributions)
        return {
            member: [(s.header, s.sealed[member]) for s in self.contributions.values()]
            for member in sorted(members)
        }

    @property
    def openers(self) -> list[int]:
        """Members that have confirmed the sum."""
        return sorted(self._confirmed)

    def confirmed(self, replies: Mapping[int, bytes]) -> list[bytes]:
        """Return the signatures under this sum.

        Raises RoundFailed if they are fewer than open it.
        """
        of = bytes.fromhex(self.digest)
        for member, text in replies.items():
            try:
                one = messages.Confirmation.from_bytes(text)
            except InputError:
                continue
            if one.site == member and one.by(self._roster.sites[member].key, of):
                self._confirmed[member] = text
        threshold = self._roster.committee.threshold
        if len(self._confirmed) < threshold:
            few = f"{len(self._confirmed)} members of the committee confirmed the sum"
            raise RoundFailed(f"{self._round}: {few}, {threshold} must; it stays hidden")
        return [self._confirmed[member] for member in self.openers]

    def total(self, replies: Mapping[int, bytes]) -> Words:
        """Return the sum of the contributions, (length,) uint64.

        Raises RoundFailed if members differ about a mask, or too few have opened the sum.
        """
        length, committee = self._request.bound.length, self._roster.committee
        openings, of = {}, self.digest
        for member, text in replies.items():
            held = committee.held_by(member)
            try:
                one = messages.Opening.from_bytes(text)
            except InputError:
                continue
            own = one.of.hex() == of and one.by(self._roster.sites[member].key)
            if own and len(one.pieces) == 8 * length * len(held):
                rows = np.frombuffer(one.pieces, "<u8").astype(np.uint64)
                rows = rows.reshape(len(held), length)
                openings[member] = dict(zip(held, rows, strict=True))
        hidden_sum = np.zeros(length, np.uint64)
        for sent in self.contributions.values():
            hidden_sum += sent.words
        try:
            return opened(hidden_sum, openings, len(committee.pieces))
        except RoundFailed as e:
            raise RoundFailed(f"{self._round}: {e}") from None


ENROL, CONFIRM, OPEN = "query.enrol", "query.confirm", "query.open"
"""Flower message types of the protocol, beside `query.answer`."""

CONFIRMED = "confirmed.json"
"""File of the sites in the sum that was last to be confirmed."""

Received = str | int | list[bytes]
Content = dict[str, dict[str, Received]]
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
            so = f"{least} open a sum; no question was sent (see the others' own logs)"
            part = f"{len(self._enrolled)} members of the committee take part"
            raise RoundFailed(f"{part}, and {so}")

    @property
    def content(self) -> Content:
        """Records that are sent with each question."""
        known = [self._enrolled[member] for member in sorted(self._enrolled)]
        return {"members": {"enrolments": known}}

    def settle(self, collector: Collector, number: int) -> int:
        """Decide who is in the sum of a round; how many they are.

        Raises RoundFailed if members were asked before to confirm a sum with others in it, who are
        away now.
        """
        before = None
        if self._kept is not None and self._kept.exists():
            record = json.loads(self._kept.read_text("utf-8"))
            if (record["job"], record["round"]) == (self.job, number):
                before = list(record["sites"])
        collector.settle(before)
        return len(collector.contributions)

    def total(self, collector: Collector, number: int, there: Iterable[int], ask: Ask) -> Words:
        """Return the sum of a charged round's contributions, (length,) uint64.

        Raises RoundFailed if too few members confirm it, or open it.
        """
        # from here on it is for good; a round that too few answered is asked again as a new one
        if self._kept is not None:
            record = {"job": self.job, "round": number, "sites": sorted(collector.contributions)}
            write_file(self._kept, json.dumps(record), durable=True)
        around = set(there)
        asking = {
            member: self._about(number, headers=[h for h, _ in sent], sealed=[s for _, s in sent])
            for member, sent in collector.to_confirm().items()
            if member in around
        }
        signed = collector.confirmed(ask(CONFIRM, asking, number))
        opening = self._about(number, of=collector.digest, signed=signed)
        return collector.total(ask(OPEN, dict.fromkeys(collector.openers, opening), number))

    def _about(self, number: int, **fields: Received) -> Content:
        return {"sum": {"run": self._run, "round": number, **fields}}


def opened(hidden_sum: Words, openings: Mapping[int, Mapping[int, Words]], pieces: int) -> Words:
    """Return the sum of the contributors' vectors.

    Parameters
    ----------
    hidden_sum
        (length,) sum of what contributors sent
    openings
        member -> {piece: (length,) sum of its streams}
    pieces
        of the committee

    Raises
    ------
    RoundFailed
        If members differ about a piece, or nobody has told one: the sum stays hidden.
    """
    total = hidden_sum.copy()
    known: dict[int, Words] = {}
    for opening in openings.values():
        for piece, words in opening.items():
            if not np.array_equal(known.setdefault(piece, words), words):
                raise RoundFailed("members of the committee differ about a mask: it is not opened")
    if len(known) < pieces:
        raise RoundFailed("too few members of the committee opened the sum: it stays hidden")
    for words in known.values():
        total += words
    return total
