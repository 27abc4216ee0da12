"""Contributions as integers modulo 2**64.

Floats do not add up to the same bits in every order, and masks come off in a group, not in floats.
So a contribution is put on a public grid and travels as 64-bit integers: the sum is exact, its
order is irrelevant, and a uniform mask hides it perfectly. Grid and number of clients come from
the plan, never from a client's message.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import ContributionRefused, InputError, integer, same
from fedcal.core.numerics import Integers, Words

_HALF = 2**63 - 1  # the largest signed integer of the ring
# Between these, grid, 1 / grid and 2**63 * grid are all finite normal floats.
_EXPONENT_LIMIT = 960
_EXACT_IN_FLOAT = 2**53


@dataclass(frozen=True)
class Ring:
    """Integers modulo 2**64 that stand for multiples of `grid`.

    Parameters
    ----------
    clients
        How many clients may contribute to one sum, at least 1.
    grid
        Step between neighbouring values, in the contribution's unit: a power of two between
        2**-960 and 2**960, so that dividing by it is exact.
    headroom
        Integer units of the sum reserved for the tails of noise, at least 0.

    Raises
    ------
    InputError
        If a field is out of range, or nothing is left for the clients (`limit` < 1).
    """

    clients: int
    grid: float
    headroom: int = 0

    def __post_init__(self) -> None:
        # Plain Python numbers from here on: limit + 1 would overflow as a numpy integer.
        object.__setattr__(self, "clients", integer("ring: clients", self.clients, 1))
        object.__setattr__(self, "headroom", integer("ring: headroom", self.headroom, 0))
        grid: Any = self.grid  # maybe not a number
        # grid = 2**(exponent - 1) if the mantissa is exactly one half; NaN, inf and 0 have others
        mantissa, exponent = math.frexp(grid if isinstance(grid, Real) else math.nan)
        if mantissa != 0.5 or abs(exponent - 1) > _EXPONENT_LIMIT:
            raise InputError(
                f"ring: grid is {grid!r}, allowed are powers of two from"
                f" 2**-{_EXPONENT_LIMIT} to 2**{_EXPONENT_LIMIT}"
            )
        object.__setattr__(self, "grid", float(grid))
        what = f"ring: the capacity that {self.clients} clients and headroom {self.headroom} leave"
        integer(what, self.limit, 1)

    @property
    def limit(self) -> int:
        """Largest `|integer|` that one client may send in any coordinate.

        `clients` of them plus `headroom` are at most 2**63 - 1, so no sum can wrap.
        """
        return (_HALF - self.headroom) // self.clients

    def encode(self, x: ArrayLike) -> NDArray[np.uint64]:
        """Put values on the grid: trunc(x / grid), modulo 2**64.

        Truncation goes toward zero, so no Lp norm grows and a bound that held for `x` still holds.

        Parameters
        ----------
        x
            Real array of any shape: floats of at most 64 bits, or integers of at most 2**53.

        Returns
        -------
        NDArray[np.uint64]
            New array of the shape of `x`, two's complement.

        Raises
        ------
        ContributionRefused
            If a value is not finite or its integer exceeds `limit`. The message names the place
            and the allowed range, never the value, because messages may leave the client.
        InputError
            If `x` is no array of real numbers.
        """
        values = _real(x)
        integers = np.empty(values.shape, np.int64)
        if values.size:
            self._check(values)
            # The check leaves |x / grid| < 2**63, so the cast to integers is defined and, as C's,
            # truncates. Given `out`, numpy casts in cached pieces: no temporary of x's size.
            # Only results below the smallest normal float are rounded, and those become 0 anyway.
            np.multiply(values, 1.0 / self.grid, out=integers, dtype=np.float64, casting="unsafe")
        return integers.view(np.uint64)

    def decode(self, total: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Values of ring elements read as signed integers, times `grid`.

        Parameters
        ----------
        total
            uint64 array of any shape.

        Returns
        -------
        NDArray[np.float64]
            New array of the same shape; exact up to 2**53 units, beyond that rounded once.

        """
        return np.asarray(np.multiply(total.view(np.int64), self.grid, dtype=np.float64))

    def add(
        self, total: NDArray[np.uint64], integers: NDArray[np.uint64] | NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Sum modulo 2**64 of a total and, say, integer noise or one more contribution.

        Parameters
        ----------
        total
            uint64 array of any shape.
        integers
            uint64 or (signed) int64 array of the same shape, in units of `grid`.

        Returns
        -------
        NDArray[np.uint64]
            New array of the same shape.

        Raises
        ------
        InputError
            If dtypes or shapes are others. Nothing is broadcast: one number added to every
            coordinate would be a mistake for noise.
        """
        addend = integers.view(np.uint64) if integers.dtype == np.int64 else integers
        both = (addend.dtype, addend.shape), (total.dtype, total.shape)
        same("dtype and shape of what is added in the ring", *both)
        return np.asarray(np.add(total, addend))

    def _check(self, values: NDArray[np.float64]) -> None:
        # Two passes without a temporary; both propagate NaN. Python then compares a float with an
        # int exactly, where float(limit) would have been rounded (2**63 - 1 becomes 2**63).
        # trunc(y) <= limit is y < limit + 1.
        high, low = float(values.max()), float(values.min())
        end = self.limit + 1
        if high / self.grid < end and low / self.grid > -end:  # False for NaN; +-inf on overflow
            return
        place = np.abs(np.where(np.isnan(values), np.inf, values)).argmax()
        index = tuple(int(i) for i in np.unravel_index(place, values.shape))
        raise ContributionRefused(
            f"the contribution's value at index {index} leaves the ring's range; allowed are finite"
            f" values within +-{self.limit * self.grid:.6g} ({self.limit} steps of {self.grid:g},"
            f" {self.clients} clients)"
        )


def _real(x: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(x)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise InputError(
            f"the contribution has dtype {array.dtype}, allowed are real numbers of at most 64 bits"
        )
    values = np.asarray(array, np.float64)
    # From 2**53 on the conversion rounds, perhaps away from zero.
    if array.dtype.kind in "iu" and array.size and np.abs(values).max() > _EXACT_IN_FLOAT:
        raise ContributionRefused("the contribution holds an integer beyond +-2**53; send floats")
    return values


MOST_ROWS = 2**31
"""Maximum number of rows of a client: halves of 32 bits of so many add up exactly."""

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
        sums = np.where(
            high == inside, (inside << 32) | low, np.where(high < 0, -self._limit, self._limit)
        )
        return np.clip(sums, -self._limit, self._limit).view(np.uint64)
