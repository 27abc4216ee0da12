"""Messages of a secure sum, as bytes: each is signed by a site, and read by others.

Numbers are little-endian and of fixed width, so that equal content is equal bytes. Whoever reads
one believes nothing: lengths are checked before anything is allocated.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.numerics import Words
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.roster import Roster

REPLY = "said"
"""Record, and key in it, of what a site replies."""

NONCE_BYTES = 16

_ENROL, _HEADER, _CONFIRM, _OPEN = "enrol", "contribution", "confirm", "open"
_ENROLMENT = struct.Struct(f"<I{keys.KEY_BYTES}s{NONCE_BYTES}s")
_FIXED = struct.Struct(
    f"<{keys.DIGEST_BYTES}sI{keys.DIGEST_BYTES}sI{keys.KEY_BYTES}sI{keys.DIGEST_BYTES}sHH"
)
_U32 = struct.Struct("<I")

CONFIRMATION_BYTES = _U32.size + keys.SIGNATURE_BYTES


class Damaged(InputError):
    """Raised for bytes that are not a message of the expected kind."""


@dataclass(frozen=True)
class Enrolment:
    """A site's X25519 key of one job, signed by the site.

    Attributes
    ----------
    site
        its number
    exchange
        32 bytes
    nonce
        16 bytes
    signature
        over the job's digest and these
    """

    site: int
    exchange: bytes
    nonce: bytes
    signature: bytes

    @classmethod
    def made(
        cls, key: keys.SigningKey, job: bytes, site: int, exchange: bytes, nonce: bytes
    ) -> Self:
        """Return a signed enrolment."""
        signature = key.sign(_ENROL, job + _ENROLMENT.pack(site, exchange, nonce))
        return cls(site, exchange, nonce, signature)

    def by(self, public: bytes, job: bytes) -> bool:
        """Return whether the site with this Ed25519 key signed it for this job."""
        message = job + _ENROLMENT.pack(self.site, self.exchange, self.nonce)
        return keys.verified(public, _ENROL, message, self.signature)

    def to_bytes(self) -> bytes:
        """Return the enrolment as 116 bytes."""
        return _ENROLMENT.pack(self.site, self.exchange, self.nonce) + self.signature

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """Damaged for anything else."""
        if len(text) != _ENROLMENT.size + keys.SIGNATURE_BYTES:
            raise Damaged("an enrolment has another length")
        site, exchange, nonce = _ENROLMENT.unpack(text[: _ENROLMENT.size])
        return cls(site, exchange, nonce, text[_ENROLMENT.size :])


def exchange_keys(roster: Roster, job: str, enrolments: Iterable[bytes]) -> dict[int, bytes]:
    """Return the X25519 keys of the members of the committee whose enrolments can be used.

    Formal guarantee: it depends on public bytes alone, so that all sites that are told the same
    enrolments take the same members for missing. One that is damaged, of another job, signed by
    somebody else, not a member's, or has a key of small order, is passed over as a member that did
    not answer; of two of one member the first counts.

    Parameters
    ----------
    roster
        of the federation
    job
        digest, 64 hexadecimal digits
    enrolments
        as `Enrolment.to_bytes` writes them
    """
    known: dict[int, bytes] = {}
    for text in dict.fromkeys(enrolments):
        try:
            one = Enrolment.from_bytes(text)
        except Damaged:
            continue
        if (
            one.site in roster.committee.members
            and one.site not in known
            and one.by(roster.sites[one.site].key, bytes.fromhex(job))
            and keys.usable_exchange_key(one.exchange)
        ):
            known[one.site] = one.exchange
    return known


@dataclass(frozen=True)
class Header:
    """Signed description of one contribution to one round.

    Attributes
    ----------
    job, question
        digests
    round
        from 1
    site
        the contributor's number
    exchange
        its X25519 key of the job
    length
        of the vector
    vector
        digest of what it sent, hidden
    receivers
        members that its seeds are sealed for
    commitments
        a digest of each piece's seed
    """

    job: bytes
    round: int
    question: bytes
    site: int
    exchange: bytes
    length: int
    vector: bytes
    receivers: tuple[int, ...]
    commitments: tuple[bytes, ...]

    def payload(self) -> bytes:
        """Return the bytes that are signed."""
        return b"".join(
            (
                _FIXED.pack(
                    *(self.job, self.round, self.question, self.site, self.exchange),
                    *(self.length, self.vector, len(self.receivers), len(self.commitments)),
                ),
                struct.pack(f"<{len(self.receivers)}I", *self.receivers),
                *self.commitments,
            )
        )

    def signed(self, key: keys.SigningKey) -> bytes:
        """Return the payload and the site's signature."""
        payload = self.payload()
        return payload + key.sign(_HEADER, payload)

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parse a header without checking its signature; Damaged for anything else."""
        if len(text) < _FIXED.size + keys.SIGNATURE_BYTES:
            raise Damaged("a header is too short")
        job, number, question, site, exchange, length, vector, receivers, commitments = (
            _FIXED.unpack_from(text)
        )
        middle = _FIXED.size + 4 * receivers
        if len(text) != middle + keys.DIGEST_BYTES * commitments + keys.SIGNATURE_BYTES:
            raise Damaged("a header has another length")
        members = struct.unpack_from(f"<{receivers}I", text, _FIXED.size)
        ends = range(middle, middle + keys.DIGEST_BYTES * commitments, keys.DIGEST_BYTES)
        digests = tuple(text[a : a + keys.DIGEST_BYTES] for a in ends)
        return cls(job, number, question, site, exchange, length, vector, members, digests)


def header_by(public: bytes, text: bytes) -> bool:
    """Return whether the site with this key signed a header."""
    return keys.verified(
        public, _HEADER, text[: -keys.SIGNATURE_BYTES], text[-keys.SIGNATURE_BYTES :]
    )


@dataclass(frozen=True)
class Contribution:
    """Final message of a contributor to a round.

    Attributes
    ----------
    header
        signed
    words
        (length,) uint64, hidden
    sealed
        member -> its pieces' seeds, which nobody else can read
    """

    header: bytes
    words: Words
    sealed: Mapping[int, bytes]

    def to_bytes(self) -> bytes:
        """Return the contribution as bytes."""
        parts = [self.header, self.words.astype("<u8", copy=False).tobytes()]
        parts += [_U32.pack(member) + text for member, text in sorted(self.sealed.items())]
        return packed(parts)

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """Damaged for anything else."""
        header, vector, *sealed = unpacked(text)
        if len(vector) % 8 or any(len(part) < _U32.size for part in sealed):
            raise Damaged("a contribution has another form")
        words = np.frombuffer(vector, "<u8").astype(np.uint64)
        known = {_U32.unpack_from(part)[0]: part[_U32.size :] for part in sealed}
        return cls(header, words, known)


def vector_digest(words: Words) -> bytes:
    """Return the digest of a contributor's vector."""
    return keys.digest("vector", words.astype("<u8", copy=False).tobytes())


def commitment(job: bytes, round_number: int, site: int, piece: int, seed: bytes) -> bytes:
    """Return a digest that binds a contributor to a seed and reveals nothing of it."""
    where = struct.pack("<III", round_number, site, piece)
    return keys.digest("seed", job, where, seed)


def sealed_for(header: bytes, receiver: int) -> bytes:
    """Return the context of a sealed message: its sender's signed header, and its receiver."""
    return keys.digest("sealed", header[: -keys.SIGNATURE_BYTES], _U32.pack(receiver))


def sum_digest(job: bytes, round_number: int, headers: Iterable[bytes]) -> bytes:
    """Return the digest that members sign: the contributions in the sum of a round."""
    return keys.digest(
        "sum", job, _U32.pack(round_number), *sorted(h[: -keys.SIGNATURE_BYTES] for h in headers)
    )


@dataclass(frozen=True)
class Confirmation:
    """A member's word that it opens this sum of the round and no other."""

    site: int
    signature: bytes

    @classmethod
    def made(cls, key: keys.SigningKey, site: int, of: bytes) -> Self:
        """Return a signed confirmation; `of` is the sum's digest."""
        return cls(site, key.sign(_CONFIRM, _U32.pack(site) + of))

    def by(self, public: bytes, of: bytes) -> bool:
        """Return whether the member with this key signed it for this sum."""
        return keys.verified(public, _CONFIRM, _U32.pack(self.site) + of, self.signature)

    def to_bytes(self) -> bytes:
        """Return the confirmation as 68 bytes."""
        return _U32.pack(self.site) + self.signature

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """Damaged for anything else."""
        if len(text) != CONFIRMATION_BYTES:
            raise Damaged("a confirmation has another length")
        return cls(_U32.unpack_from(text)[0], text[_U32.size :])


@dataclass(frozen=True)
class Opening:
    """Signed pieces of a sum from one member; one damaged bit would spoil the total.

    Attributes
    ----------
    of
        the sum's digest
    pieces
        (pieces held, length) numbers of 64 bits, row by row
    """

    of: bytes
    pieces: bytes
    signature: bytes

    @classmethod
    def made(cls, key: keys.SigningKey, of: bytes, pieces: bytes) -> Self:
        """Return a signed opening."""
        return cls(of, pieces, key.sign(_OPEN, keys.digest("pieces", of, pieces)))

    def by(self, public: bytes) -> bool:
        """Return whether the member with this key signed it."""
        return keys.verified(
            public, _OPEN, keys.digest("pieces", self.of, self.pieces), self.signature
        )

    def to_bytes(self) -> bytes:
        """Return the opening as bytes."""
        return packed([self.of, self.pieces, self.signature])

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """Damaged for anything else."""
        parts = unpacked(text)
        if len(parts) != 3:
            raise Damaged("an opening has another form")
        return cls(*parts)


def packed(parts: Sequence[bytes]) -> bytes:
    """Parts, each behind its length."""
    return b"".join(piece for part in parts for piece in (_U32.pack(len(part)), part))


def unpacked(text: bytes) -> list[bytes]:
    """Return the parts of `packed`, at least two; Damaged for anything else."""
    parts, at = [], 0
    while at < len(text):
        size = int.from_bytes(text[at : at + _U32.size], "little")
        at += _U32.size
        if at + size > len(text):
            raise Damaged("a message ends too early")
        parts.append(text[at : at + size])
        at += size
    if len(parts) < 2:
        raise Damaged("a message has too few parts")
    return parts
