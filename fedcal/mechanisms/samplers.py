"""Sources of random bits: one signature, two sources.

Finite distributions as integer tables: alias method on 128-bit probabilities.

A table of m values has 2**bits >= m columns of equal probability, each shared by two values: the
column's own and its alias (Walker 1977; Vose 1991). A draw takes one word: its first bits are the
column, the rest decides between the two. Where the rest equals the first bits of the threshold
(probability 2**(bits - 64) or less), a second word continues the comparison to 128 bits.

The work of a draw is therefore two look-ups for any drawn value.

Probabilities are multiples of 2**-128: rounding moves at most ``m * 2**-128`` of total variation.
Weights are decimals of 60 digits (`exact`), never doubles.

Laplace noise on the integers, from a few small tables; Gaussian noise: `gaussian_sampler`.

Laplace. The basis is a geometric variate G, P(G = g) ~ q^g with q = exp(-1 / scale). Its digits
to base b are independent, and digit j is distributed ~ q^(b^j d) on 0 ... b - 1; the part above
the last digit is geometric again. So any scale needs one table of 2**12 entries for each 12 bits.

Shares of discrete Laplace noise: differences of Polya variates as compound Poisson sums.

A Polya (negative binomial) variate of shape r and ratio q is the sum of a Poisson number, of mean
-r log(1 - q), of independent logarithmic variates P(k) ~ q^k / k, k >= 1 (Quenouille 1949). The
difference of two is the same with twice the mean and a fair sign on each: *jumps*. Tables of the
share itself would need 50 times the scale as entries; jumps need no more than Laplace noise.

A jump. With k = 2^i + d, 0 <= d < 2^i, it is distributed ~ q^(2^i) q^d / (2^i + d). So: draw i from
a table; d, truncated geometric, is the last i bits of a geometric variate (its bits are
independent); accept with probability 2^i / (2^i + d), decided on 128 bits.

Work does not depend on the drawn values: a batch tries as many jumps as its shares need with all
but probability 2 exp(-50) < 2**-71, uses the first of them and leaves the others unused. The number
of accepted tries affects the time, but reveals nothing about the accepted jumps.

Error of one share, in total variation: at most 56 jumps are expected (shares > 1, scale 2**40).
Each is off by 2**-70 (a geometric variate's tail, exp(-50), times 2 / accepted for the condition of
acceptance), together by 2**-64; the batch adds 2**-71, tables and the decision less than 2**-90.

Integer noise with an exactly known distribution, by table look-ups on random words.

A source of bits is a callable ``Words``: `system_words` (the operating system's CSPRNG, for
deployment) or `seeded_words` (repeatable, for simulation; it gives no protection against anyone who
has the seed). The sampler is the same for both, so a simulation runs the deployed code. Values,
scales and stds are in grid units: the caller multiplies by the grid of its ring.

Exactness
---------
Each returned variate is within ``TOTAL_VARIATION`` = 2**-60 of its ideal distribution. The
accountant of a release adds ``draws * (1 + exp(epsilon)) * TOTAL_VARIATION`` to its delta, where
draws is the number of variates in it: replacing the ideal noise by this noise on both sides of
P <= e^eps Q + delta costs one total variation on each. The samplers themselves count nothing.

Upper bounds of the contribution of each part to the total variation of one variate:

* probabilities in units of 2**-128 (6 tables of 8400 values): 6 * 8400 * 2**-128 < 2**-112
* weights of 60 digits (every table): recurrences lose at most 10 digits of them: < 2**-160
* tail of a geometric variate (above 50 scales): exp(-50) < 2**-72
* tail of a Gaussian table (beyond 10.2 stds of it, 6 tables): 6 * 2**-74 < 2**-71
* smoothing of a split Gaussian (5 splits (`noise`)): 5 * 2 * 2**-190
* jumps of a Polya share (up to 56 expected (`polya`)): < 2**-63

Scales given as doubles stand for their exact binary values; thresholds are computed in decimals of
60 digits and in integers. Doubles are used only for the size of a batch of `polya_share`.

Bounded support: no value lies beyond 50 scales or about 11 stds (a share: 200 scales for each of
its jumps). That is within the total variation above. A pure epsilon (delta = 0) therefore does not
hold in the strict sense: count the 2**-60, or state that the epsilon is for the ideal distribution.

Timing
------
The number of words used, and the sizes of all arrays, depend on arguments, which are public, and
not on the drawn values, with two exceptions: (a) with probability up to 2**-51 a look-up is not
decided by its first word and uses a second one; (b) `polya_share` packs its accepted tries, whose
number is independent of the values. *Which entry* of a table is read does depend on the drawn
value. An attacker who can watch the processor's cache while noise is drawn (code on the same
machine, sharing a cache with this process) may learn the 64-byte line, that is about 8 neighbouring
columns and so few candidates for a digit of the noise. An attacker who only measures the duration
of a call sees cache misses: entries that are rarely drawn are less likely to be in the cache. We
know of no way to use that over a network, and have not shown that there is none. Against both, draw
on a dedicated machine, or at least a dedicated core, and answer at fixed times. Nothing here erases
memory after use.
"""

import decimal
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import fraction, interval
from fedcal.core.numerics import Integers

Words = Callable[[int], NDArray[np.uint64]]
"""``words(n)`` returns n fresh, independent, uniformly random 64-bit words."""


def system_words(n: int) -> NDArray[np.uint64]:
    """Return `n` words of the operating system's CSPRNG; nothing is buffered between calls."""
    return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


def seeded_words(generator: np.random.Generator) -> Words:
    """Return repeatable words of `generator`, for simulation.

    Anyone with the seed knows the noise.
    """

    def words(n: int) -> NDArray[np.uint64]:
        # random_raw would be shorter, but some bit generators return 32 bits from it
        return generator.integers(0, 2**64, n, dtype=np.uint64)

    return words


_DIGITS = 60
UNITS = 128  # probabilities are multiples of 2**-128
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
class DrawTable:
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


def make_table(weights: Sequence[Decimal]) -> DrawTable:
    """Return the table of index i with probability ``weights[i] / sum(weights)``.

    Call it within `exact`. At least one weight is above 0, none is below.
    """
    scale = Decimal(2**UNITS) / sum(weights)
    units = [int(weight * scale) for weight in weights]
    units[max(range(len(units)), key=units.__getitem__)] += 2**UNITS - sum(units)
    bits = max(1, (len(units) - 1).bit_length())
    units += [0] * (2**bits - len(units))
    alias = list(range(2**bits))
    capacity = 2 ** (UNITS - bits)
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
    table = DrawTable(bits, high, low, np.array(alias, np.int64))
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


LEAST_LAPLACE = 0.05
"""Least scale of Laplace noise and its shares, in grid units."""

_LARGEST = 2.0**40  # limit of scales and stds: 50 times it is still far from 2**63
_TAIL = 50  # a geometric variate is cut off above _TAIL * scale: exp(-50) < 2**-72
_DIGIT = 12  # bits of a geometric variate's digit


def check_scale(name: str, value: Any, least: float) -> float:
    """Return `value` as a float in [least, 2**40]; InputError if it is none."""
    return interval(f"[{least}, {_LARGEST}]", f"in [{least:g}, 2**40]")(name, value)


# --- Bernoulli ----------------------------------------------------------------------------------


def bernoulli(p: float, n: int, words: Words) -> NDArray[np.bool_]:
    """Return `n` independent coins, each True with probability `p`, shape (n,) bool.

    `p` is in [0, 1] and stands for its exact binary value. Raises InputError outside of it.
    """
    table = _coin(fraction("a probability", p, "[]"))
    return in_chunks(lambda size: table.draw(size, words), n).astype(np.bool_)


@lru_cache(maxsize=64)
def _coin(p: float) -> DrawTable:
    with exact():
        return make_table([to_decimal(1 - Fraction(p)), to_decimal(p)])


# --- Laplace ------------------------------------------------------------------------------------


def geometric(scale: float, n: int, words: Words) -> Integers:
    """Return `n` independent variates P(g) ~ exp(-g / scale), g = 0, 1, ..., shape (n,) int64."""
    drawn = np.zeros(n, np.int64)
    for j, table in enumerate(_digits(scale)):
        drawn += table.draw(n, words) << (_DIGIT * j)
    return drawn


@lru_cache(maxsize=64)
def _digits(scale: float) -> tuple[DrawTable, ...]:
    tables: list[DrawTable] = []
    with exact():
        left = to_decimal(scale)  # the scale in units of the digit at hand
        base = 2**_DIGIT
        while _TAIL * left > base:
            tables.append(_powers((-1 / left).exp(), base))
            left /= base
        tables.append(_powers((-1 / left).exp(), math.ceil(_TAIL * left) + 1))
    return tuple(tables)


def _powers(ratio: Decimal, length: int) -> DrawTable:
    weights = [Decimal(1)]
    for _ in range(length - 1):
        weights.append(weights[-1] * ratio)
    return make_table(weights)


def discrete_laplace(scale: float, n: int, words: Words) -> Integers:
    """Return `n` independent variates `P(k) ~ exp(-|k| / scale)`, k an integer, (n,) int64.

    Parameters
    ----------
    scale
        in grid units, from 0.05 to 2**40

    Raises
    ------
    InputError
        For a scale outside of this range.

    Notes
    -----
    Given their sign, k >= 0 and -1 - k > 0 are both geometric; k < 0 has probability q / (1 + q).
    """
    scale = check_scale("a Laplace scale", scale, LEAST_LAPLACE)
    negative = _negative(scale)

    def draw(size: int) -> Integers:
        # -1 - g is g with all its bits flipped
        return geometric(scale, size, words) ^ -negative.draw(size, words)

    return in_chunks(draw, n)


@lru_cache(maxsize=64)
def _negative(scale: float) -> DrawTable:
    with exact():
        return make_table([Decimal(1), (-1 / to_decimal(scale)).exp()])


_SHARES, _JUMPS = 2**14, 2**13  # at a time; jumps as expected
_HALF = np.uint64(32)
_LOWER = np.uint64(2**32 - 1)


def polya_share(scale: float, shares: float, n: int, words: Words) -> Integers:
    """Return `n` independent shares of discrete Laplace noise, shape (n,) int64.

    A share is the difference of two independent Polya variates of shape 1 / shares and ratio
    exp(-1 / scale); the sum of `shares` of them is exactly `discrete_laplace(scale)`.

    Parameters
    ----------
    scale
        of the sum, in grid units, from 0.05 to 2**40
    shares
        from 1 to 2**40, not necessarily an integer. Each 1 / shares costs about 2.9 log(scale)
        tries of a jump, so few shares of a large scale are slow (except one share alone, which is
        drawn as discrete Laplace noise)

    Raises
    ------
    InputError
        For a value outside of these ranges.

    Source
    ------
    Goryczka & Xiong 2017; Kairouz, Liu & Steinke 2021.
    """
    scale = check_scale("a Laplace scale", scale, LEAST_LAPLACE)
    check_scale("the number of shares", shares, 1)
    if shares == 1:
        return discrete_laplace(scale, n, words)
    share = _shares_of(scale, float(shares))
    batch = min(_SHARES, max(1, int(_JUMPS / share.mean)))
    return in_chunks(lambda size: share.draw(size, words), n, batch)


@dataclass(frozen=True)
class _Shares:
    """Compound Poisson distribution of a share.

    Attributes
    ----------
    scale
        of the geometric variates
    mean
        expected number of jumps
    count
        Poisson distribution of the number of jumps
    block
        twice the i of 2^i <= k < 2^(i + 1), plus 1 for a negative jump
    accepted
        probability that a tried jump is accepted, at least 1/2
    """

    scale: float
    mean: float
    count: DrawTable
    block: DrawTable
    accepted: float

    def draw(self, n: int, words: Words) -> Integers:
        """Return `n` shares, shape (n,) int64."""
        # Poisson, above: Bernstein's inequality; binomial, below: Chernoff's
        mean = self.mean * n
        most = math.ceil(mean + _TAIL / 3 + math.sqrt(_TAIL**2 / 9 + 2 * _TAIL * mean))
        need = most + _TAIL + math.sqrt(_TAIL**2 + 2 * _TAIL * most)
        jumps = self._jumps(math.ceil(need / self.accepted), words)[:most]
        sums = np.zeros(most + 1, np.int64)
        sums[1 : len(jumps) + 1] = jumps
        np.cumsum(sums, out=sums)
        ends = np.minimum(np.cumsum(self.count.draw(n, words)), most)
        return np.diff(sums[ends], prepend=0)

    def _jumps(self, tries: int, words: Words) -> Integers:
        """Return the accepted jumps among `tries`."""
        index = self.block.draw(tries, words)
        least = np.int64(1) << (index >> 1)
        size = least + (geometric(self.scale, tries, words) & (least - 1))
        accept = _below(least, size, words(tries), words(tries))
        return np.where(index & 1, -size, size)[accept]


def _below(
    least: Integers, size: Integers, high: NDArray[np.uint64], low: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Return whether u < least / size; the bits of u in [0, 1) are the words `high`, `low`."""
    factor = size.view(np.uint64)
    integer_part, fraction = _times(high, factor)
    carry = fraction + _times(low, factor)[0] < fraction
    return integer_part + carry < least.view(np.uint64)


def _times(
    a: NDArray[np.uint64], b: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first and last 64 bits of the products a * b."""
    a1, a0, b1, b0 = a >> _HALF, a & _LOWER, b >> _HALF, b & _LOWER
    cross = a1 * b0 + (a0 * b0 >> _HALF)
    carried = a0 * b1 + (cross & _LOWER)
    return a1 * b1 + (cross >> _HALF) + (carried >> _HALF), a * b


@lru_cache(maxsize=64)
def _shares_of(scale: float, shares: float) -> _Shares:
    with exact():
        wide = to_decimal(scale)
        q = (-1 / wide).exp()
        mean = -2 * (1 - q).ln() / to_decimal(shares)
        # weight of tries in block i: q^(2^i) (1 + q + ... + q^(2^i - 1)) / 2^i
        tried: list[Decimal] = []
        size = 1
        while size <= 2 * _TAIL * scale or not tried:
            power = (-size / wide).exp()
            tried.append(power * (1 - power) / ((1 - q) * size))
            size *= 2
        counts = [Decimal(1)]
        while counts[-1] * 10**30 > sum(counts) or len(counts) <= mean:
            counts.append(counts[-1] * mean / len(counts))
        return _Shares(
            scale,
            float(mean),
            make_table(counts),
            make_table([weight / 2 for weight in tried for _ in range(2)]),
            float(-(1 - q).ln() / sum(tried)),
        )


TOTAL_VARIATION = 2.0**-60
"""Bound of the total variation distance of each variate from its ideal distribution."""
