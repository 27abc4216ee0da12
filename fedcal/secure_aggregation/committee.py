"""The committee of a secure sum: who holds which part of the masks, and the masked vectors.

A contributor hides its vector by one mask for each *piece*. There is a piece for each set T of
t - 1 members; its seed goes to the members outside of T. Any t members therefore know all pieces
together, and t - 1 members, being one of the sets, lack a piece. No field is needed, and so no
polynomial over vectors: sums are modulo 2**64 as everywhere (Ito, Saito and Nishizeki 1987,
replicated secret sharing; Cramer, Damgard and Ishai 2005).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedcal.core.checks import RoundFailed, different, like, same, whole
from fedcal.core.numerics import Words

EVERYBODY_UP_TO = 7
"""So many sites are all members, where nobody says who is."""

SEED_BYTES = 32

MOST_PIECES = 1000
"""Each is a stream as long as the vector, for each contributor."""


def check_committee(size: int, threshold: int) -> None:
    """InputError for a committee that cannot be, or has more pieces than anybody can use."""
    whole("the committee's size", size, 2, 64)
    # above one half: else two parts of it could open two different sums
    whole(f"the threshold of a committee of {size}", threshold, size // 2 + 1, size)
    what = f"the pieces of a committee of {size} with threshold {threshold} (choose fewer members)"
    whole(what, math.comb(size, threshold - 1), 1, MOST_PIECES)


def read_committee(text: str) -> tuple[int, int]:
    """Members and threshold of "C,T"; InputError for anything else."""
    like("committee", text, r"\s*[0-9]{1,3}\s*,\s*[0-9]{1,3}\s*", "C,T, such as 5,4")
    size, threshold = map(int, text.split(","))
    check_committee(size, threshold)
    return size, threshold


def colluding(size: int, threshold: int) -> int:
    """Return how many members may work with the server, which still learns one sum a round.

    t - 1, who lack a piece; and so few that two sets of t signatures, each under another sum,
    have an honest member in common, who signs once: 2 t - C - 1.
    """
    return min(threshold - 1, 2 * threshold - size - 1)


def default_threshold(size: int) -> int:
    """One member may be absent; of seven or more two."""
    return max(2, size - (1 if size < EVERYBODY_UP_TO else 2))


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
        members = tuple(sorted(whole("a committee's member", m, 0) for m in self.members))
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
