"""Finite distributions as integer tables: alias method on 128-bit probabilities.

A table of m values has 2**bits >= m columns of equal probability, each shared by two values: the
column's own and its alias (Walker 1977; Vose 1991). A draw takes one word: its first bits are the
column, the rest decides between the two. Where the rest equals the first bits of the threshold
(probability 2**(bits - 64) or less), a second word continues the comparison to 128 bits.

The work of a draw is therefore two look-ups for any drawn value.

Probabilities are multiples of 2**-128: rounding moves at most ``m * 2**-128`` of total variation.
Weights are decimals of 60 digits (`exact`), never doubles.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedcal.core.types import Integers
from fedcal.mechanisms.samplers.words import Words

__all__ = ["Table", "exact", "in_chunks", "make_table", "to_decimal"]

_DIGITS = 60
_UNITS = 128  # probabilities are multiples of 2**-128
_WORD = 64
_CHUNK = 2**14  # draws at a time, so that the data of two look-ups stay in the cache


@contextmanager
def exact() -> Iterator[None]:
    """Set decimal arithmetic to 60 digits, whatever the caller's own context is."""
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        yield


def to_decimal(value: float | Fraction) -> Decimal:
    """Return `value` with the context's digits; a float stands for its exact binary value."""
    fraction = Fraction(value)
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


@dataclass(frozen=True, eq=False)
class Table:
    """Distribution on 0 ... m - 1.

    Attributes
    ----------
    bits
        the table has 2**bits columns, bits >= 1
    high, low
        (2**bits,) each column's threshold in units of 2**-128: the first 64 - bits
        and the last 64 bits of it; below the threshold the column itself is drawn
    alias
        (2**bits,) value that is drawn otherwise
    """

    bits: int
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    alias: Integers

    def draw(self, n: int, words: Words) -> Integers:
        """Return `n` independent indices, shape (n,) int64; one word each (see the module)."""
        word = words(n)
        column = (word >> np.uint64(_WORD - self.bits)).view(np.int64)
        rest = word & np.uint64(2 ** (_WORD - self.bits) - 1)
        threshold = self.high.take(column)
        own = rest < threshold
        tied = np.flatnonzero(rest == threshold)
        if len(tied):
            own[tied] = words(len(tied)) < self.low[column[tied]]
        drawn = self.alias.take(column)
        np.copyto(drawn, column, where=own)
        return drawn


def make_table(weights: Sequence[Decimal]) -> Table:
    """Return the table of index i with probability ``weights[i] / sum(weights)``.

    Call it within `exact`. At least one weight is above 0, none is below.
    """
    scale = Decimal(2**_UNITS) / sum(weights)
    units = [int(weight * scale) for weight in weights]
    units[max(range(len(units)), key=units.__getitem__)] += 2**_UNITS - sum(units)
    bits = max(1, (len(units) - 1).bit_length())
    units += [0] * (2**bits - len(units))
    alias = list(range(2**bits))
    capacity = 2 ** (_UNITS - bits)
    short = [i for i, unit in enumerate(units) if unit < capacity]
    rich = [i for i, unit in enumerate(units) if unit > capacity]
    while (
        short
    ):  # the units add up to the columns' capacity: for each short one there is a rich one
        poor, giver = short.pop(), rich[-1]
        alias[poor] = giver
        units[giver] -= capacity - units[poor]
        if units[giver] <= capacity:
            rich.pop()
            if units[giver] < capacity:
                short.append(giver)
    high = np.array([unit >> _WORD for unit in units], np.uint64)
    low = np.array([unit & (2**_WORD - 1) for unit in units], np.uint64)
    table = Table(bits, high, low, np.array(alias, np.int64))
    for array in (table.high, table.low, table.alias):
        array.flags.writeable = False
    return table


def in_chunks(draw: Callable[[int], Integers], n: int, size: int = _CHUNK) -> Integers:
    """Return `n` draws, made at most `size` at a time, shape (n,) int64."""
    drawn = np.empty(n, np.int64)
    for start in range(0, n, size):
        stop = min(start + size, n)
        drawn[start:stop] = draw(stop - start)
    return drawn
