"""What a client's rows, or subjects, add up to, where each of them is an addend of its own."""

from __future__ import annotations

import numpy as np

from fedcal.core.types import Integers, Words
from fedcal.secure_aggregation.fixed_point import Ring

MOST_ROWS = 2**31
"""Of a client: halves of 32 bits of so many add up exactly."""

_LOW = np.uint64(2**32 - 1)


class ClientSums:
    """Integer sums over each client's rows or subjects, saturated at what the ring grants a client.

    Formal guarantee: one addend (row, subject) more or less of a client moves each number of its
    sum by at most what the addend itself has there. The sum is made in wide integers, so that
    nothing wraps, and then clamped, which is 1-Lipschitz, before noise and the modulus. A client
    that were refused for too many rows would tell a neighbour apart with certainty.

    Parameters
    ----------
    clients, length
        of the sums
    ring
        grants each client +-`Ring.limit` in each coordinate
    """

    def __init__(self, clients: int, length: int, ring: Ring) -> None:
        self._limit = ring.limit
        # Halves of 32 bits: their sums are exact up to `MOST_ROWS`.
        self._high = np.zeros((clients, length), np.int64)
        self._low = np.zeros((clients, length), np.int64)

    def add(self, words: Words, owner: Integers) -> None:
        """Add the words of each row to those of its client.

        Parameters
        ----------
        words
            (rows, length) uint64, signed integers in two's complement, sorted by client
        owner
            (rows,) client of each row
        """
        if not len(owner):
            return
        firsts = np.concatenate([[0], np.flatnonzero(np.diff(owner)) + 1])
        high, low = words.view(np.int64) >> 32, (words & _LOW).view(np.int64)
        self._high[owner[firsts]] += np.add.reduceat(high, firsts, axis=0)
        self._low[owner[firsts]] += np.add.reduceat(low, firsts, axis=0)

    def add_halves(self, high: Integers, low: Integers) -> None:
        """Add sums of the upper and of the lower 32 bits of words, (clients, length) each."""
        self._high += high
        self._low += low

    def saturated(self) -> Words:
        """Return the clamped sums, shape (clients, length) uint64."""
        high = self._high + (self._low >> 32)
        low = self._low & np.int64(_LOW)
        inside = np.clip(high, -(2**31), 2**31 - 1)
        # Beyond 64 bits only the sign counts.
        whole = np.where(
            high == inside, (inside << 32) | low, np.where(high < 0, -self._limit, self._limit)
        )
        return np.clip(whole, -self._limit, self._limit).view(np.uint64)
