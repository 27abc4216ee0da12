"""Shares of discrete Laplace noise: differences of Polya variates as compound Poisson sums.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import positive, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Integers
from fedcal.mechanisms.samplers.lookup_tables import Table, exact, in_chunks, make_table, to_decimal
from fedcal.mechanisms.samplers.noise import (
    LEAST_LAPLACE,
    check_scale,
    discrete_laplace,
    geometric,
)
from fedcal.mechanisms.samplers.words import Words

__all__ = ["polya_share"]

_TAIL = 50.0  # events of probability exp(-50) are neglected
_LARGEST = 2.0**40  # limit of the number of shares
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
    if not 1 <= positive("the number of shares", shares) <= _LARGEST:
        raise InputError(f"the number of shares must be in [1, 2**40], got {shares!r}")
    n = whole("the number of draws", n, 0)
    if shares == 1:
        return discrete_laplace(scale, n, words)
    law = _law(scale, float(shares))
    batch = min(_SHARES, max(1, int(_JUMPS / law.mean)))
    return in_chunks(lambda size: law.draw(size, words), n, batch)


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
    count: Table
    block: Table
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
    whole_part, fraction = _times(high, factor)
    carry = fraction + _times(low, factor)[0] < fraction
    return whole_part + carry < least.view(np.uint64)


def _times(
    a: NDArray[np.uint64], b: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first and last 64 bits of the products a * b."""
    a1, a0, b1, b0 = a >> _HALF, a & _LOWER, b >> _HALF, b & _LOWER
    cross = a1 * b0 + (a0 * b0 >> _HALF)
    carried = a0 * b1 + (cross & _LOWER)
    return a1 * b1 + (cross >> _HALF) + (carried >> _HALF), a * b


@lru_cache(maxsize=64)
def _law(scale: float, shares: float) -> _Shares:
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
