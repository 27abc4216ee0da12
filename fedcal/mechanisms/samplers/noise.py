"""Laplace and Gaussian noise on the integers, each from a few small tables.

Laplace. The basis is a geometric variate G, P(G = g) ~ q^g with q = exp(-1 / scale). Its digits
to base b are independent, and digit j is distributed ~ q^(b^j d) on 0 ... b - 1; the part above
the last digit is geometric again. So any scale needs one table of 2**12 entries for each 12 bits.

Gaussian. A large variance v is split: if x1 and x2 are discrete Gaussians of variances v1 and v2
with v = v1 + 4^j v2, then x1 + 2^j x2 has the distribution of variance v up to a factor in
[(1 - e) / (1 + e), (1 + e) / (1 - e)], where e is about 2 exp(-2 pi^2 r^2) and

    r^2 = (v1 / 4^j) (1 - v1 / v)

is the variance, in units of 2^j, of x2 given the sum (complete the square: the sum over x2 is that
of a Gaussian over the lattice 2^j Z, smooth once r is large; Micciancio & Regev 2007, Lemma 3.3;
Peikert 2010, Theorem 3.1). A large v1 is not enough: x2 has to be wide as well. With
v1 = 9 * 4^j <= v / 4 we have r^2 >= 6.75 and e < 2**-190. The split repeats on v2.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import positive, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Integers
from fedcal.mechanisms.samplers.lookup_tables import Table, exact, in_chunks, make_table, to_decimal
from fedcal.mechanisms.samplers.words import Words

__all__ = [
    "LEAST_LAPLACE",
    "bernoulli",
    "check_scale",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
]

LEAST_LAPLACE = 0.05
"""Least scale of Laplace noise and its shares, in grid units."""

_LARGEST = 2.0**40  # limit of scales and stds: 50 times it is still far from 2**63
_TAIL = 50  # a geometric variate is cut off above _TAIL * scale: exp(-50) < 2**-72
_DIGIT = 12  # bits of a geometric variate's digit
# A Gaussian table ends 1 beyond 10.2 stds: 2 exp(-10.2^2 / 2) < 2**-74. The discrete one's tail
# is no heavier, P(X >= m) <= P(N >= m - 1): the sum of its weights is at least sqrt(2 pi) stds.
_STDS = Fraction(51, 5)
# No table has a variance above _WIDEST * 4**_SPLIT: 409^2, which needs 8345 values.
_WIDEST = Fraction(51, 5)
_SPLIT = 7


def check_scale(name: str, value: Any, least: float) -> float:
    """Return `value` as a float in [least, 2**40], or raise InputError."""
    number = positive(name, value)
    if not least <= number <= _LARGEST:
        raise InputError(f"{name} must be in [{least:g}, 2**40] grid units, got {value!r}")
    return number


# --- Bernoulli ----------------------------------------------------------------------------------


def bernoulli(p: float, n: int, words: Words) -> NDArray[np.bool_]:
    """Return `n` independent coins, each True with probability `p`, shape (n,) bool.

    `p` is in [0, 1] and stands for its exact binary value. Raises InputError outside of it.
    """
    if p != 0 and positive("a probability", p) > 1:
        raise InputError(f"a probability must be in [0, 1], got {p!r}")
    n = whole("the number of draws", n, 0)
    table = _coin(float(p))
    return in_chunks(lambda size: table.draw(size, words), n).astype(np.bool_)


@lru_cache(maxsize=64)
def _coin(p: float) -> Table:
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
def _digits(scale: float) -> tuple[Table, ...]:
    tables: list[Table] = []
    with exact():
        left = to_decimal(scale)  # the scale in units of the digit at hand
        base = 2**_DIGIT
        while _TAIL * left > base:
            tables.append(_powers((-1 / left).exp(), base))
            left /= base
        tables.append(_powers((-1 / left).exp(), math.ceil(_TAIL * left) + 1))
    return tuple(tables)


def _powers(ratio: Decimal, length: int) -> Table:
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
    n = whole("the number of draws", n, 0)
    negative = _negative(scale)

    def draw(size: int) -> Integers:
        # -1 - g is g with all its bits flipped
        return geometric(scale, size, words) ^ -negative.draw(size, words)

    return in_chunks(draw, n)


@lru_cache(maxsize=64)
def _negative(scale: float) -> Table:
    with exact():
        return make_table([Decimal(1), (-1 / to_decimal(scale)).exp()])


# --- Gaussian -----------------------------------------------------------------------------------


def discrete_gaussian(std: float, n: int, words: Words) -> Integers:
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
    std = check_scale("a Gaussian std", std, 0.3)
    n = whole("the number of draws", n, 0)
    parts = _parts(std)

    def draw(size: int) -> Integers:
        drawn = np.zeros(size, np.int64)
        for table, middle, shift in parts:
            drawn += (table.draw(size, words) - middle) << shift
        return drawn

    return in_chunks(draw, n)


@lru_cache(maxsize=64)
def _parts(std: float) -> tuple[tuple[Table, int, int], ...]:
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
def _bell(variance: Fraction) -> tuple[Table, int]:
    """Return the table of a discrete Gaussian on -middle ... middle, and middle."""
    middle = math.isqrt(math.ceil(_STDS**2 * variance)) + 2
    with exact():
        half = _ordinates(to_decimal(variance), middle)
        return make_table(half[:0:-1] + half), middle


def _ordinates(variance: Decimal, last: int) -> list[Decimal]:
    """Return exp(-k^2 / (2 variance)) for k = 0 ... last."""
    weights, ratio = [Decimal(1)], (-1 / (2 * variance)).exp()
    square = ratio * ratio
    for _ in range(last):
        weights.append(weights[-1] * ratio)
        ratio *= square
    return weights
