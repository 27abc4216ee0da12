"""A federation in one process whose every message is noted: what its server has seen, and may see.

Honest sites are `Party`s over records of their own. Crooked ones belong to the server: it has their
keys, and says in their names what it likes. `World.violations` looks at all that honest sites sent.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from known_sums import is_multiple, learnable

from fedcal.clients.site import party
from fedcal.clients.site.party import Party
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.store import SiteRecords
from fedcal.core.checks import InputError
from fedcal.secure_aggregation import keys, messages
from fedcal.secure_aggregation.keys import SigningKey, new_exchange_key, seal, shared_key, unseal
from fedcal.secure_aggregation.roster import (
    SEED_BYTES,
    Committee,
    Member,
    Roster,
    hidden,
    stream_sum,
)

SHAPES = ((3, 2), (3, 3), (4, 3), (5, 4), (7, 5))
MOST_SITES, MOST_ROUNDS, MOST_NUMBERS = 9, 3, 4

ABOUT = JobFacts(
    *("", "fedbin", "user", "secagg", "zero-out", "none", math.inf, 0.0, MOST_ROUNDS, "claimed"),
    *("the server", math.inf),
)

Given = list[tuple[bytes, bytes]]


def digest(*what: object) -> str:
    """Of a question, a job, anything: 64 hexadecimal digits."""
    return hashlib.sha256(repr(what).encode()).hexdigest()


def signed_part(header: bytes) -> bytes:
    """What names a contribution."""
    return header[: -keys.SIGNATURE_BYTES]


@dataclass
class Clear:
    """A contribution, and what its site alone knows of it."""

    site: int
    job: str
    round: int
    sent: messages.Contribution
    words: np.ndarray
    seeds: list[bytes]


@dataclass
class Seen:
    """What an honest member opened, and how many had signed for it by then."""

    member: int
    job: str
    round: int
    of: str
    text: bytes
    signers: int


@dataclass
class World:
    """One federation; of `crooked` sites as many are members as the committee bears.

    `least` is m, at least two more than there are crooked sites; `wrong` = what should not be.
    """

    seed: int
    committee: Committee
    sites: int
    crooked: frozenset[int]
    least: int
    jobs: list[str]
    rounds: int = 1
    length: int = 3
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def at_random(cls, seed: int) -> World:
        """One whose shape follows from the seed alone."""
        rng = random.Random(seed)
        size, threshold = rng.choice(SHAPES)
        sites = rng.randint(size, MOST_SITES)
        committee = Committee(tuple(rng.sample(range(sites), size)), threshold)
        number = rng.randint(0, sites - 2)
        members = rng.sample(committee.members, min(number, rng.randint(0, committee.colluding)))
        others = [k for k in range(sites) if k not in committee.members]
        rng.shuffle(others)
        crooked = frozenset([*members, *others[: number - len(members)]])
        return cls(
            *(seed, committee, sites, crooked, rng.randint(len(crooked) + 2, sites)),
            jobs=[digest(seed, "job", k) for k in range(rng.randint(1, 2))],
            rounds=rng.randint(1, MOST_ROUNDS),
            length=rng.randint(1, MOST_NUMBERS),
        )

    @classmethod
    def of(cls, committee: Committee, sites: int, least: int) -> World:
        """One of honest sites, with one job."""
        return cls(0, committee, sites, frozenset(), least, [digest("job")])

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(digest(self.seed))
        sites = self.sites
        self.honest = [k for k in range(sites) if k not in self.crooked]
        self.keys = [SigningKey(bytes.fromhex(digest(self.seed, k))) for k in range(sites)]
        self.roster = Roster(
            *("world", tuple(Member(f"site {k}", key.public) for k, key in enumerate(self.keys))),
            self.committee,
        )
        self.servers_key = (  # of a friend of the server's, or its own
            self.keys[rng.choice(sorted(self.crooked))]
            if self.crooked
            else SigningKey(bytes.fromhex(digest(self.seed, "server")))
        )
        self._records = {k: SiteRecords(None) for k in self.honest}
        self._parties = {k: self._party(k) for k in self.honest}
        self.clear: dict[bytes, Clear] = {}
        self.answers: dict[tuple[str, int, int], list[bytes]] = defaultdict(list)
        self.openings: list[Seen] = []
        self.sums: dict[str, tuple[str, int, list[bytes]]] = {}
        self.signed: dict[str, set[int]] = defaultdict(set)
        # X25519 keys that the server sent contributors under a member's number: their secrets
        self.secrets: dict[int, list[bytes]] = defaultdict(list)

    def _party(self, site: int) -> Party:
        return Party(self.keys[site], self.roster, self._records[site])

    def party(self, site: int) -> Party:
        """An honest site as it is now."""
        return self._parties[site]

    def restart(self, site: int) -> None:
        """A new process over the same records."""
        if site in self._parties:
            self._parties[site] = self._party(site)

    def close(self) -> None:
        """Of all records."""
        for one in self._records.values():
            one.close()

    def _asked(self, site: int, ask: Callable[[Party], Any]) -> Any:
        """What an honest site replies; None = it refuses, in one line."""
        if self.rng.random() < 0.05:
            self.restart(site)
        try:
            return ask(self._parties[site])
        except InputError:
            return None

    # --- what sites are asked --------------------------------------------------------------

    def question(self, job: str, number: int) -> str:
        """Digest of the question that the job asks in a round."""
        return digest(self.seed, job, number)

    def enrol(self, site: int, job: str) -> bytes | None:
        """A site's enrolment; that of a crooked one has a key that the server knows."""
        if site in self.crooked:
            return self.sent_key(site, self.keys[site], job)
        return self._asked(site, lambda one: one.enrol(replace(ABOUT, job=job)))

    def sent_key(self, member: int, signer: SigningKey, job: str) -> bytes:
        """An enrolment under a member's number with an X25519 key of the server's."""
        secret, public = new_exchange_key()
        self.secrets[member].append(secret)
        of = bytes.fromhex(job)
        return messages.Enrolment.made(signer, of, member, public, os.urandom(16)).to_bytes()

    def answer(
        self, site: int, job: str, number: int, question: str, enrolments: Sequence[bytes]
    ) -> bytes | None:
        """An honest site's contribution."""
        drawn: list[np.ndarray] = []
        seeds: list[list[bytes]] = []
        own_seeds, about = party.roster.new_seeds, replace(ABOUT, job=job)

        def draw() -> np.ndarray:
            drawn.append(np.array([self.rng.getrandbits(64) for _ in range(self.length)], "u8"))
            return drawn[-1]

        def noted(pieces: int) -> list[bytes]:
            seeds.append(own_seeds(pieces))
            return seeds[-1]

        party.roster.new_seeds = noted
        try:
            asked = (about, number, question, enrolments, draw)
            reply = self._asked(site, lambda one: one.answer(*asked))
        finally:
            party.roster.new_seeds = own_seeds
        if reply is None:
            return None
        text, again = reply
        if again is bool(drawn) or len(drawn) > 1:
            self.wrong.append(f"site {site} drew {len(drawn)} times for one answer")
        known = self.answers[job, number, site]
        if text not in known:
            known.append(text)
        if drawn:
            sent = messages.Contribution.from_bytes(text)
            made = Clear(site, job, number, sent, drawn[0], seeds[0])
            self.clear[signed_part(sent.header)] = made
        return text

    def crooked_answer(
        self, site: int, job: str, number: int, enrolments: Sequence[bytes], lie: str = ""
    ) -> bytes:
        """A contribution in a site's name that the server or its friend makes up.

        ``lie``: "all seeds" or "seeds" = members, or some, are sealed others than are committed
        to; "commitments" = one too few; "receivers" = one that is none; "number" = no site's.
        """
        committee, of = self.committee, bytes.fromhex(job)
        words = np.array([self.rng.getrandbits(64) for _ in range(self.length)], "u8")
        seeds = [os.urandom(SEED_BYTES) for _ in committee.pieces]
        sent = hidden(words, seeds)
        known = {e.site: e.exchange for e in map(messages.Enrolment.from_bytes, enrolments)}
        secret, public = new_exchange_key()
        commitments = [
            messages.commitment(of, number, site, k, seed) for k, seed in enumerate(seeds)
        ]
        header = messages.Header(
            *(of, number, bytes.fromhex(self.question(job, number))),
            len(self.keys) + 3 if lie == "number" else site,
            *(public, len(sent), messages.vector_digest(sent)),
            (*sorted(known), *([999] if lie == "receivers" else [])),
            tuple(commitments[:-1] if lie == "commitments" else commitments),
        ).signed(self.keys[site] if site in self.crooked else self.servers_key)
        sealed = {}
        for member, exchange in known.items():
            held = [seeds[k] for k in committee.held_by(member)]
            if lie == "all seeds" or (lie == "seeds" and self.rng.random() < 0.5):
                held[self.rng.randrange(len(held))] = os.urandom(SEED_BYTES)
            key = shared_key(secret, exchange, of, site, member)
            sealed[member] = seal(key, b"".join(held), messages.sealed_for(header, member))
        made = messages.Contribution(header, sent, sealed)
        if site in self.crooked:
            self.clear[signed_part(header)] = Clear(site, job, number, made, words, seeds)
        return made.to_bytes()

    def confirm(self, member: int, job: str, number: int, given: Given) -> bytes | None:
        """An honest member's signature under a sum."""
        headers = [header for header, _ in given]
        of = messages.sum_digest(bytes.fromhex(job), number, headers).hex()
        self.sums[of] = (job, number, headers)
        reply = self._asked(member, lambda one: one.confirm(job, number, self.least, given))
        if reply is not None:
            self.signed[of].add(member)
        return reply

    def open(
        self, member: int, job: str, number: int, of: str, confirmations: Sequence[bytes]
    ) -> bytes | None:
        """An honest member's pieces of a sum."""
        reply = self._asked(member, lambda one: one.open(job, number, of, confirmations))
        if reply is not None:
            signers = self.signed[of] | (self.crooked & set(self.committee.members))
            self.openings.append(Seen(member, job, number, of, reply, len(signers)))
        return reply

    # --- what the server has got -----------------------------------------------------------

    def violations(self) -> list[str]:
        """What should not be, after a run."""
        for (job, number, site), texts in self.answers.items():
            if len(texts) != 1:
                self.wrong.append(f"site {site} sent {len(texts)} contributions to one round")
            clear = self.clear[signed_part(messages.Contribution.from_bytes(texts[0]).header)]
            plain = clear.sent.words + stream_sum(clear.seeds, self.length)
            if not np.array_equal(plain, clear.words) or (clear.job, clear.round) != (job, number):
                self.wrong.append(f"site {site} sent another vector than it drew")
        for one in self.openings:
            self._check_opening(one)
        for job, number in {(job, number) for job, number, _ in self.answers}:
            self._check_knowledge(job, number)
        return self.wrong

    def _contributors(self, of: str) -> list[Clear] | None:
        _, _, headers = self.sums[of]
        found = [self.clear.get(signed_part(header)) for header in headers]
        return None if None in found else found

    def _check_opening(self, one: Seen) -> None:
        if one.of not in self.sums:
            self.wrong.append("a sum was opened that nobody was asked to confirm")
            return
        job, number, _ = self.sums[one.of]
        if one.signers < self.committee.threshold:
            self.wrong.append(f"opened with {one.signers} signatures")
        if (contributors := self._contributors(one.of)) is None:
            self.wrong.append("a sum with a contribution that no site made was opened")
            return
        sites = {clear.site for clear in contributors}
        where = {(clear.job, clear.round) for clear in contributors}
        if len(sites) != len(contributors) or where != {(one.job, one.round)}:
            self.wrong.append("contributions of another round, or a site twice, in an opened sum")
        if (job, number) != (one.job, one.round):
            self.wrong.append("a sum of another round was opened")
        if len(sites) < self.least or len(sites - self.crooked) < self.least - len(self.crooked):
            self.wrong.append(f"a sum of {len(sites)} was opened, at least {self.least} must be")
        reply = messages.Opening.from_bytes(one.text)
        held = self.committee.held_by(one.member)
        want = [stream_sum([c.seeds[k] for c in contributors], self.length) for k in held]
        if reply.of.hex() != one.of or np.array(want).tobytes() != reply.pieces:
            self.wrong.append("a member opened other streams than those of its sum")

    def _check_knowledge(self, job: str, number: int) -> None:
        """That only multiples of one sum over enough sites follow from all that is known."""
        openings = [one for one in self.openings if (one.job, one.round) == (job, number)]
        if len({one.of for one in openings}) > 1:
            self.wrong.append("honest members opened two sums of a round")
        sent = {
            site: self.clear[signed_part(messages.Contribution.from_bytes(text).header)]
            for (of, at, site), texts in self.answers.items()
            for text in texts
            if (of, at) == (job, number)
        }
        place = {site: k for k, site in enumerate(sorted(sent))}
        known: list[set[tuple[int, ...]]] = [set() for _ in self.committee.pieces]
        allowed = set()
        for one in openings:
            inside = frozenset(
                place[clear.site]
                for clear in self._contributors(one.of) or []
                if clear is sent.get(clear.site)
            )
            allowed.add(inside)
            for k in self.committee.held_by(one.member):
                known[k].add(tuple(int(i in inside) for i in range(len(place))))
        for site, clear in sent.items():
            for k in self._read(clear):
                known[k].add(tuple(int(i == place[site]) for i in range(len(place))))
        for vector in learnable([sorted(span) for span in known], len(place)):
            if not any(is_multiple(vector, of) and len(of) > 1 for of in allowed):
                self.wrong.append(f"the server can compute {vector} of the honest contributions")

    def _read(self, clear: Clear) -> set[int]:
        """Pieces of a contribution whose seeds the server can unseal with the secrets it has."""
        found = set()
        for member, text in clear.sent.sealed.items():
            for secret in self.secrets[member]:
                header = clear.sent.header
                of, exchange = bytes.fromhex(clear.job), messages.Header.read(header).exchange
                key = shared_key(secret, exchange, of, clear.site, member)
                try:
                    seen = unseal(key, text, messages.sealed_for(header, member))
                except InputError:
                    continue
                held = self.committee.held_by(member)
                assert seen == b"".join(clear.seeds[k] for k in held)
                found |= set(held)
        return found
