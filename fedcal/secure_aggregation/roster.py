"""The committee of a secure sum: who holds which part of the masks, and the masked vectors.

A contributor hides its vector by one mask for each *piece*. There is a piece for each set T of
t - 1 members; its seed goes to the members outside of T. Any t members therefore know all pieces
together, and t - 1 members, being one of the sets, lack a piece. No field is needed, and so no
polynomial over vectors: sums are modulo 2**64 as everywhere (Ito, Saito and Nishizeki 1987,
replicated secret sharing; Cramer, Damgard and Ishai 2005).

The roster of a federation: its sites, their keys, and who opens sums. The server has no say.

A coordinator collects the sites' public keys and seals them with the study; each site pins the
roster by its digest, which people compare by telephone.
The coordinator is not the server: whoever chooses the keys of the committee could be the
committee.
"""

from __future__ import annotations

import json
import math
import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedcal.core.checks import InputError, damaged, different, integer, like, same
from fedcal.core.naming import one_form
from fedcal.core.numerics import Words
from fedcal.secure_aggregation import keys

SEED_BYTES = 32

MOST_PIECES = 1000
"""Each is a stream as long as the vector, for each contributor."""


def check_committee(size: int, threshold: int) -> None:
    """InputError for a committee that cannot be, or has more pieces than anybody can use."""
    integer("the committee's size", size, 2, 64)
    # above one half: else two parts of it could open two different sums
    integer(f"the threshold of a committee of {size}", threshold, size // 2 + 1, size)
    what = f"the pieces of a committee of {size} with threshold {threshold} (choose fewer members)"
    integer(what, math.comb(size, threshold - 1), 1, MOST_PIECES)


def colluding(size: int, threshold: int) -> int:
    """Return how many members may work with the server, which still learns one sum a round.

    t - 1, who lack a piece; and so few that two sets of t signatures, each under another sum,
    have an honest member in common, who signs once: 2 t - C - 1.
    """
    return min(threshold - 1, 2 * threshold - size - 1)


@dataclass(frozen=True)
class Committee:
    """Members, by their numbers as sites, and how many of them open a sum.

    Attributes
    ----------
    members
        at least 2, each once
    threshold
        t: so many open a sum, and one fewer know nothing

    Raises
    ------
    InputError
        If there can be no such committee (`check_committee`).
    """

    members: tuple[int, ...]
    threshold: int

    def __post_init__(self) -> None:
        members = tuple(sorted(integer("a committee's member", m, 0) for m in self.members))
        different("sites of the committee", members)
        object.__setattr__(self, "members", members)
        check_committee(len(members), self.threshold)

    @classmethod
    def of_first(cls, size: int, threshold: int) -> Committee:
        """Return the committee of the first sites; in a simulation all sites are alike."""
        return cls(tuple(range(size)), threshold)

    @cached_property
    def pieces(self) -> tuple[tuple[int, ...], ...]:
        """The sets T of members that do not get a piece, one for each piece."""
        return tuple(combinations(self.members, self.threshold - 1))

    def held_by(self, member: int) -> tuple[int, ...]:
        """Numbers of the pieces whose seeds a member gets."""
        return tuple(k for k, without in enumerate(self.pieces) if member not in without)

    @property
    def colluding(self) -> int:
        """Number of members that may work with the server; see `colluding`."""
        return colluding(len(self.members), self.threshold)


def stream(seed: bytes, length: int) -> NDArray[np.uint64]:
    """First `length` 64-bit words of the ChaCha20 key stream (RFC 8439) of a seed.

    The seed is the key. Nonce and block counter start at zero, which is fine because a key serves
    one pair in one round, for this one stream.

    Parameters
    ----------
    seed
        32 bytes.
    length
        Number of words, at least 0.

    Returns
    -------
    NDArray[np.uint64]
        Shape (length,), read-only; words are little-endian on every machine.

    Raises
    ------
    InputError
        If the seed, maybe from a message, has another length.
    """
    same("length of a mask's seed", len(seed), SEED_BYTES)
    cipher = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    words = np.frombuffer(cipher.update(bytes(8 * length)), "<u8")
    return words.astype(np.uint64, copy=False)


def new_seeds(pieces: int) -> list[bytes]:
    """Draw a fresh seed for each piece."""
    drawn = os.urandom(SEED_BYTES * pieces)
    return [drawn[k : k + SEED_BYTES] for k in range(0, len(drawn), SEED_BYTES)]


def stream_sum(seeds: Iterable[bytes], length: int) -> Words:
    """Return the sum of the streams of these seeds, (length,)."""
    total = np.zeros(length, np.uint64)
    for seed in seeds:
        total += stream(seed, length)
    return total


def hidden(words: Words, seeds: Sequence[bytes]) -> Words:
    """Return a vector minus its streams, (length,): uniform without all of the seeds."""
    return np.asarray(words - stream_sum(seeds, len(words)))


MOST_SITES = 100_000
MOST_BYTES = 1 << 25
"""Maximum size of a roster: 100,000 sites with names of 200 bytes."""

_LONGEST_NAME = 64


@dataclass(frozen=True)
class Member:
    """A site of a federation.

    Attributes
    ----------
    name
        what people call it: printable, at most 64 characters
    key
        its Ed25519 public key, 32 bytes
    """

    name: str
    key: bytes

    def __post_init__(self) -> None:
        check_name("a site's name", self.name)
        same(f"length of the key of site {self.name!r}", len(self.key), keys.KEY_BYTES)


@dataclass(frozen=True)
class Roster:
    """Sites of a federation and the committee that opens sums; equal digests, equal rosters.

    Formal guarantee: `digest` is of the name, the sites in their order with names and keys, the
    committee, its threshold and the classes; under a collision-free SHA-256 nobody can change one
    of these and keep the digest. Layout, comments and order of keys of the file do not matter.

    Attributes
    ----------
    name
        of the federation
    sites
        numbered by place, from 0
    committee
        of numbers of sites
    class_digest
        `fedcal.core.naming.digest_of` of the names of the classes; "" = not said

    Raises
    ------
    InputError
        If a name or key occurs twice, there are more than 100,000 sites, or a member is no site.
    """

    name: str
    sites: tuple[Member, ...]
    committee: Committee
    class_digest: str = ""

    def __post_init__(self) -> None:
        check_name("the federation's name", self.name)
        integer("the number of sites", len(self.sites), 2, MOST_SITES)
        different("sites of one name", (one_form(site.name).casefold() for site in self.sites))
        different("sites of one key", (site.key.hex() for site in self.sites))
        integer("a member of the committee", self.committee.members[-1], 0, len(self.sites) - 1)
        if self.class_digest != "":
            check_digest("the class digest", self.class_digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text, 64 hexadecimal digits."""
        return keys.digest("roster", self.to_text().encode("ascii")).hex()

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {site.key: number for number, site in enumerate(self.sites)}

    def number_of(self, key: bytes) -> int | None:
        """Return the number of the site with this Ed25519 public key; None if there is none."""
        return self._numbers.get(key)

    # --- as text, in messages ---------------------------------------------------------------

    def to_text(self) -> str:
        """Canonical JSON: sorted keys, no spaces, ASCII."""
        fields = {
            "class-digest": self.class_digest,
            "committee": self.committee.members,
            "name": self.name,
            "sites": [{"key": site.key.hex(), "name": site.name} for site in self.sites],
            "threshold": self.committee.threshold,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Roster:
        """Return the roster that `to_text` wrote; InputError for any other text."""
        integer("the size of the message's roster in bytes", len(text), 0, MOST_BYTES)
        with damaged("the message contains no roster in canonical form", RecursionError):
            fields = json.loads(text)
            sites = tuple(Member(s["name"], bytes.fromhex(s["key"])) for s in fields["sites"])
            committee = Committee(tuple(fields["committee"]), fields["threshold"])
            roster = cls(fields["name"], sites, committee, fields["class-digest"])
        same("roster of the message, in canonical form,", text, roster.to_text())
        return roster


def check_name(what: str, name: Any) -> str:
    """`name` if people can read it, and no two look alike by their encoding; or InputError."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _LONGEST_NAME
        or not name.isprintable()  # no control characters, none that turn the direction of text
        or name != unicodedata.normalize("NFC", name).strip()
    ):
        raise InputError(
            f"{what} must be printable text of at most {_LONGEST_NAME} characters, without spaces "
            f"at its ends, got {str(name)[:80]!r}"
        )
    return name


def check_digest(what: str, text: Any) -> str:
    """`text` if it is a SHA-256 in lower-case hexadecimal digits, or InputError."""
    return like(what, text, "[0-9a-f]{64}", "64 hexadecimal digits")


def in_words(digest: str) -> str:
    """First 132 bits of a digest as 12 words of a list of 2,048, as people read them aloud."""
    words = Path(__file__).with_name("words.txt").read_text("ascii").split()
    bits = int(digest[:33], 16)
    return " ".join(words[bits >> at & 2047] for at in range(121, -1, -11))
