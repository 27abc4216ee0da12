"""The server's side of a secure sum: it carries what sites sign, and adds up.

The server is believed by nobody (`fedcal.clients.site.party`); what is checked here only keeps one
site's damaged message from spoiling the round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from fedcal.core.errors import InputError, RoundFailed
from fedcal.core.types import Words
from fedcal.queries.request import Request
from fedcal.secure_aggregation.keys import usable_exchange_key
from fedcal.secure_aggregation.messages import (
    Confirmation,
    Contribution,
    Header,
    Opening,
    exchange_keys,
    header_by,
    sum_digest,
    vector_digest,
)
from fedcal.secure_aggregation.roster import Roster
from fedcal.secure_aggregation.shares import opened


def enrolled(roster: Roster, job: str, replies: Mapping[int, bytes]) -> dict[int, bytes]:
    """Enrolments by member, of those that sites can use; the others count as missing."""
    return {s: text for s, text in replies.items() if s in exchange_keys(roster, job, [text])}


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
        self.contributions: dict[int, Contribution] = {}
        self._receivers: dict[int, tuple[int, ...]] = {}
        self._confirmed: dict[int, bytes] = {}

    def add(self, site: int, text: bytes) -> bool:
        """Take a site's contribution; False if it cannot be used: the site is absent then."""
        try:
            sent = Contribution.from_bytes(text)
            header = Header.read(sent.header)
        except InputError:
            return False
        committee = self._roster.committee
        own = (self._job, self._request.round, bytes.fromhex(self._request.digest))
        sound = (
            (header.job, header.round, header.question) == own
            and header.site == site
            and header.length == len(sent.words) == self._request.bound.length
            and header.vector == vector_digest(sent.words)
            and set(header.receivers) == set(sent.sealed) <= set(committee.members)
            and len(header.commitments) == len(committee.pieces)
            and usable_exchange_key(header.exchange)  # else no member confirms the sum
            and header_by(self._roster.sites[site].key, sent.header)
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
                receivers = {site: set(who) for site, who in self._receivers.items()}
                only = max(
                    (
                        [site for site, who in receivers.items() if who.issuperset(some)]
                        for some in combinations(committee.members, committee.threshold)
                    ),
                    key=len,
                )
        if not set(only) <= set(self.contributions):
            raise RoundFailed(
                f"round {self._request.round}: members were asked to confirm a sum before the "
                "server restarted, and not all sites in it are online; start them and resume"
            )
        self.contributions = {site: self.contributions[site] for site in sorted(only)}

    def _common(self, sites: Iterable[int]) -> set[int]:
        """Members that all of these sites sealed their seeds for."""
        members = set(self._roster.committee.members)
        return members.intersection(*(self._receivers[site] for site in sites))

    @property
    def digest(self) -> str:
        """Digest of the sum, as members sign it."""
        headers = (sent.header for sent in self.contributions.values())
        return sum_digest(self._job, self._request.round, headers).hex()

    def to_confirm(self) -> dict[int, list[tuple[bytes, bytes]]]:
        """Member -> each contributor's header and what it sealed for this member."""
        members = self._common(self.contributions)
        return {
            member: [(s.header, s.sealed[member]) for s in self.contributions.values()]
            for member in sorted(members)
        }

    def confirmed(self, replies: Mapping[int, bytes]) -> list[bytes]:
        """Return the signatures under this sum.

        Raises RoundFailed if they are fewer than open it.
        """
        of = bytes.fromhex(self.digest)
        for member, text in replies.items():
            try:
                one = Confirmation.from_bytes(text)
            except InputError:
                continue
            if one.site == member and one.by(self._roster.sites[member].key, of):
                self._confirmed[member] = text
        threshold = self._roster.committee.threshold
        if len(self._confirmed) < threshold:
            raise RoundFailed(
                f"round {self._request.round}: {len(self._confirmed)} members of the committee "
                f"confirmed the sum, {threshold} must; it stays hidden"
            )
        return [self._confirmed[member] for member in sorted(self._confirmed)]

    @property
    def openers(self) -> list[int]:
        """Members that have confirmed the sum."""
        return sorted(self._confirmed)

    def total(self, replies: Mapping[int, bytes]) -> Words:
        """Return the sum of the contributions, (length,) uint64.

        Raises RoundFailed if members differ about a mask, or too few have opened the sum.
        """
        length, committee = self._request.bound.length, self._roster.committee
        openings, of = {}, self.digest
        for member, text in replies.items():
            held = committee.held_by(member)
            try:
                one = Opening.from_bytes(text)
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
            raise RoundFailed(f"round {self._request.round}: {e}") from None
