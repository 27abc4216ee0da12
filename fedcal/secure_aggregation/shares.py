"""Vectors and their masks, one for each piece of a committee.

A contributor sends y = x - sum over pieces T of PRG(k_T). A member returns, for each piece that it
holds, the sum over contributors of PRG(k_T). All of it together is the sum of the x. The generator
is the ChaCha20 key stream of `masking.stream`; everything is modulo 2**64.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedcal.core.errors import RoundFailed
from fedcal.core.types import Words
from fedcal.secure_aggregation.masking import SEED_BYTES, stream


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
