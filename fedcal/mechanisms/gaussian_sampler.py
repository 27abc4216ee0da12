"""Gaussian noise on the integers, from a few small tables; exactness and timing: see `samplers`.

A large variance v is split: if x1 and x2 are discrete Gaussians of variances v1 and v2
with v = v1 + 4^j v2, then x1 + 2^j x2 has the distribution of variance v up to a factor in
[(1 - e) / (1 + e), (1 + e) / (1 - e)], where e is about 2 exp(-2 pi^2 r^2) and

    r^2 = (v1 / 4^j) (1 - v1 / v)

is the variance, in units of 2^j, of x2 given the sum (complete the square: the sum over x2 is that
of a Gaussian over the lattice 2^j Z, smooth once r is large; Micciancio & Regev 2007, Lemma 3.3;
Peikert 2010, Theorem 3.1). A large v1 is not enough: x2 has to be wide as well. With
v1 = 9 * 4^j <= v / 4 we have r^2 >= 6.75 and e < 2**-190. The split repeats on v2.
"""

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from fedcal.core.numerics import Integers
from fedcal.mechanisms import samplers

# A Gaussian table ends 1 beyond 10.2 stds: 2 exp(-10.2^2 / 2) < 2**-74. The discrete one's tail
# is no heavier, P(X >= m) <= P(N >= m - 1): the sum of its weights is at least sqrt(2 pi) stds.
_STDS = Fraction(51, 5)
# No table has a variance above _WIDEST * 4**_SPLIT: 409^2, which needs 8345 values.
_WIDEST = Fraction(51, 5)
_SPLIT = 7


def discrete_gaussian(std: float, n: int, words: samplers.Words) -> Integers:
    """Return `n` independent variates P(k) ~ exp(-k^2 / (2 std^2)), k an integer, (n,) int64.

    Parameters
    ----------
    std
        in grid units, from 0.3 to 2**40; below about 1 the variance is smaller than std^2

    Raises
    ------
    InputError
        For a std outside of this range.

    Source
    ------
    Canonne, Kamath & Steinke 2020 (The discrete Gaussian for differential privacy) for the
    distribution; for the splitting see the module.
    """
    std = samplers.check_scale("a Gaussian std", std, 0.3)
    parts = _parts(std)

    def draw(size: int) -> Integers:
        drawn = np.zeros(size, np.int64)
        for table, middle, shift in parts:
            drawn += (table.draw(size, words) - middle) << shift
        return drawn

    return samplers.in_chunks(draw, n)


@lru_cache(maxsize=64)
def _parts(std: float) -> tuple[tuple[samplers.DrawTable, int, int], ...]:
    """Return (table, index of the value 0, shift); the variate sums (index - middle) << shift."""
    parts = []
    left, shift = Fraction(std) ** 2, 0
    while left > _WIDEST * 4**_SPLIT:
        j = _SPLIT if left >= 36 * 4**_SPLIT else _SPLIT - 1  # 9 * 4**j is at most a quarter
        parts.append((*_bell(Fraction(9 * 4**j)), shift))
        left = left / 4**j - 9
        shift += j
    parts.append((*_bell(left), shift))
    return tuple(parts)


@lru_cache(maxsize=64)
def _bell(variance: Fraction) -> tuple[samplers.DrawTable, int]:
    """Return the table of a discrete Gaussian on -middle ... middle, and middle."""
    middle = math.isqrt(math.ceil(_STDS**2 * variance)) + 2
    with samplers.exact():
        half = _ordinates(samplers.to_decimal(variance), middle)
        return samplers.make_table(half[:0:-1] + half), middle


def _ordinates(variance: Decimal, last: int) -> list[Decimal]:
    """Return exp(-k^2 / (2 variance)) for k = 0 ... last."""
    weights, ratio = [Decimal(1)], (-1 / (2 * variance)).exp()
    square = ratio * ratio
    for _ in range(last):
        weights.append(weights[-1] * ratio)
        ratio *= square
    return weights
