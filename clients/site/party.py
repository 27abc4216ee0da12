"""A site's side of a secure sum: it contributes once, and opens one sum of a round.

**Formal guarantee.** Let the server, and at most `Committee.colluding` members with any number of
contributors, do what they like, and let the other sites follow this file. Then of a round

* the server learns, of the honest contributors' vectors, at most one sum over a set U of
  contributors, whose headers each was signed by its site, with |U| >= the m that stands in the
  job; no sum of a smaller set, nor any other combination modulo 2**64;
* each contributor's vector in it is the one that it drew once, stored, and signed.

Assumed: the roster's keys are the sites' own (`fedcal.secure_aggregation.roster`); Ed25519,
X25519, HKDF-SHA256, ChaCha20 and ChaCha20-Poly1305 are what they are taken for; records are not set
back to an earlier state (`fedcal.clients.site.store`). Not promised: that a round
succeeds (any site can stop one), and that what others contribute is true (a vector is any ring
element). A crooked member can shift a sum as a crooked contributor can, where no honest one opens
the same piece.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.store import SiteRecords
from fedcal.core import checks, numerics
from fedcal.core.checks import InputError
from fedcal.secure_aggregation import messages, roster
from fedcal.secure_aggregation.keys import SigningKey, new_exchange_key, seal, shared_key, unseal
from fedcal.secure_aggregation.messages import header_by


class Party:
    """One site in the secure sums of a federation.

    Parameters
    ----------
    key
        the site's own; its place in the roster is the site's number
    roster
        pinned by the site
    records
        where what was said once is kept

    Raises
    ------
    InputError
        If the roster does not know the key.
    """

    def __init__(self, key: SigningKey, roster: roster.Roster, records: SiteRecords) -> None:
        why = f"its key must be in the federation {roster.name!r}"
        self.site = checks.needed("this site's number", roster.number_of(key.public), why)
        self._key, self._roster, self._records = key, roster, records

    def enrol(self, job: JobFacts) -> bytes:
        """Return the site's signed key of the job; the same one every time."""

        def make() -> tuple[bytes, bytes]:
            secret, public = new_exchange_key()
            nonce = os.urandom(messages.NONCE_BYTES)
            signed = messages.Enrolment.made(
                self._key, bytes.fromhex(job.job), self.site, public, nonce
            )
            return secret, signed.to_bytes()

        return self._records.enrol(job, make)

    def answer(
        self,
        job: JobFacts,
        round_number: int,
        question: str,
        enrolments: Sequence[bytes],
        draw: Callable[[], numerics.Words],
        *,
        asked_once: bool = False,
    ) -> tuple[bytes, bool]:
        """Return the hidden contribution to a round, and whether it was sent before.

        Parameters
        ----------
        job
            what it is
        question
            its digest, 64 hexadecimal digits
        enrolments
            of members of the committee, as the server tells them; a member without a usable one is
            missing
        draw
            this site's vector with its coin and its noise, (length,); called once in the life of
            a round

        Raises
        ------
        InputError
            If fewer members than can open a sum have an enrolment that can be used; or as
            `SiteRecords.answer`.
        """
        own = messages.Enrolment.from_bytes(self.enrol(job)).exchange
        secret, of = self._records.private_key(job.job), bytes.fromhex(job.job)

        def make() -> bytes:
            members = {
                member: shared_key(secret, key, of, self.site, member)
                for member, key in self._enrolled(job.job, enrolments).items()
            }
            sent = draw()  # after all that can be refused
            seeds = roster.new_seeds(len(self._roster.committee.pieces))
            words = roster.hidden(sent, seeds)
            header = messages.Header(
                job=of,
                round=round_number,
                question=bytes.fromhex(question),
                site=self.site,
                exchange=own,
                length=len(words),
                vector=messages.vector_digest(words),
                receivers=tuple(sorted(members)),
                commitments=tuple(
                    messages.commitment(of, round_number, self.site, k, seed)
                    for k, seed in enumerate(seeds)
                ),
            ).signed(self._key)
            sealed = {}  # for each member the seeds of its pieces, readable by it alone
            for member, key in members.items():
                text = b"".join(seeds[k] for k in self._roster.committee.held_by(member))
                sealed[member] = seal(key, text, messages.sealed_for(header, member))
            return messages.Contribution(header, words, sealed).to_bytes()

        return self._records.answer(job, round_number, question, make, asked_once=asked_once)

    def _enrolled(self, job: str, enrolments: Sequence[bytes]) -> dict[int, bytes]:
        """X25519 keys of members, each signed by its member for this job; enough to open a sum."""
        committee = self._roster.committee
        # before any signature is verified
        checks.integer("the number of enrolments", len(enrolments), 0, len(committee.members))
        known = messages.exchange_keys(self._roster, job, enrolments)
        checks.integer("the number of members that have enrolled", len(known), committee.threshold)
        return known

    def confirm(
        self, job: str, round_number: int, least: int, contributions: Sequence[tuple[bytes, bytes]]
    ) -> bytes:
        """Return the member's signature under the one sum of the round that it will open.

        Parameters
        ----------
        least
            m, fewest contributions in a sum, as the job says
        given
            of each contributor in the sum its signed header, and what it sealed for this member

        Raises
        ------
        InputError
            If anything is not as its contributor signed it, there are too few, or another sum of
            this round was signed before. Nothing is signed then.
        """
        headers = [text for text, _ in contributions]
        of = messages.sum_digest(bytes.fromhex(job), round_number, headers)
        secret = self._records.private_key(job)

        def make() -> tuple[bytes, bytes]:
            sums = self._sums(job, secret, round_number, least, contributions)
            return messages.Confirmation.made(self._key, self.site, of).to_bytes(), sums.tobytes()

        return self._records.confirm(job, round_number, of.hex(), make)

    def _sums(
        self,
        job: str,
        secret: bytes,
        round_number: int,
        least: int,
        contributions: Sequence[tuple[bytes, bytes]],
    ) -> numerics.Words:
        """Return the checked pieces, summed over the contributors: (pieces held, length) uint64."""
        of = bytes.fromhex(job)
        questions, seed_lists = set[tuple[bytes, int]](), list[list[bytes]]()
        headers = [messages.Header.read(text) for text, _ in contributions]
        checks.different("contributions of one site", (header.site for header in headers))
        for header, (text, sealed) in zip(headers, contributions, strict=True):
            most = len(self._roster.sites) - 1
            site = checks.integer("the number of a contributor", header.site, 0, most)
            if not header_by(self._roster.sites[site].key, text):
                raise InputError(f"the contribution of site {site} is not signed by it")
            checks.same(f"round of the contribution of site {site}", header.round, round_number)
            checks.same(f"job of the contribution of site {site}", header.job, of)
            questions.add((header.question, header.length))
            key = shared_key(secret, header.exchange, of, site, self.site)
            seed_lists.append(
                self._seeds(header, unseal(key, sealed, messages.sealed_for(text, self.site)))
            )
        checks.integer("the number of contributions in a sum", len(headers), least)
        checks.same("number of questions in one sum", len(questions), 1)
        ((_, length),) = questions
        return np.array(
            [roster.stream_sum(seeds, length) for seeds in zip(*seed_lists, strict=True)]
        )

    def _seeds(self, header: messages.Header, text: bytes) -> list[bytes]:
        """Return a contributor's seeds for this member, if they match its commitments."""
        committee, starts = self._roster.committee, range(0, len(text), roster.SEED_BYTES)
        held = committee.held_by(self.site) if self.site in committee.members else ()
        seeds = [text[a : a + roster.SEED_BYTES] for a in starts]
        made = [
            messages.commitment(header.job, header.round, header.site, k, seed)
            for k, seed in zip(held, seeds, strict=False)
        ]
        complete = len(header.commitments) == len(committee.pieces) and len(seeds) == len(held)
        if not complete or made != [header.commitments[k] for k in held]:
            raise InputError(f"site {header.site} sealed other seeds than it committed to")
        return seeds

    def open(self, job: str, round_number: int, of: str, confirmations: Sequence[bytes]) -> bytes:
        """Return the member's pieces of the sum, once enough members have signed it.

        Parameters
        ----------
        of
            the sum's digest, 64 hexadecimal digits

        Raises
        ------
        InputError
            If this member has not signed for it, or fewer than t members have.
        """
        roster.check_digest("a sum's digest", of)
        committee, signed = self._roster.committee, set[int]()
        for text in dict.fromkeys(confirmations):  # a copy costs no second verification
            with suppress(messages.Damaged):
                one = messages.Confirmation.from_bytes(text)
                if one.site in committee.members and one.by(
                    self._roster.sites[one.site].key, bytes.fromhex(of)
                ):
                    signed.add(one.site)
        checks.integer(
            "the number of members that signed this sum", len(signed), committee.threshold
        )
        pieces = self._records.sums(job, round_number, of)
        return messages.Opening.made(self._key, bytes.fromhex(of), pieces).to_bytes()
