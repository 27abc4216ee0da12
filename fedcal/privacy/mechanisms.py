"""From a sum, or a contribution, to something that may be released.

Formal guarantees. `Delta_1`, `Delta_2` are the L1 and L2 norms of what a neighbour changes in the
sum, each block in units of its norm (`Bound`, `Plan.diameter`); unit, adjacency and trust are the
plan's. All noise is added to integers on the ring's grid.

=====================  =======================================================================
mechanism              one release
=====================  =======================================================================
``laplace``            a Laplace variate of scale norm_b Delta_1 / epsilon, rounded to the grid:
                       epsilon-DP (Dwork et al. 2006), rounding is post-processing
``gaussian``           a normal variate of std norm_b Delta_2 * multiplier, rounded to the grid:
                       a Gaussian mechanism with that multiplier (`accounting`)
``discrete-laplace``   P(k) ~ exp(-|k| / scale) on the grid: epsilon-DP (Ghosh et al. 2009). It is
                       a sum of n Polya differences, so n clients can add a share each
``discrete-gaussian``  P(k) ~ exp(-k^2 / 2 std^2) on the grid. With std^2 = s^2 + 9 steps^2 it is a
                       randomised rounding of a continuous Gaussian of std s (Peikert 2010,
                       Theorem 3.1: total variation < 2^-200 a value), so it inherits that
                       one's guarantee. n shares of variance std^2 / n, each of at least 3 steps,
                       add up to it within 2^-100 (Kairouz, Liu & Steinke 2021: their tau)
``exponential``        index i with probability ~ exp(-epsilon |S_i| / (2 C)), where a neighbour
                       changes |S_i| by at most C: epsilon-DP (McSherry & Talwar 2007; Asi &
                       Duchi 2020). Only the index is released. Central trust only
``unary``              a one-hot answer bit by bit: a 1 stays with probability 1/2, a 0 becomes 1
                       with probability 1 / (1 + e^epsilon): epsilon-DP for one client's answer
                       replaced by any other (Wang et al. 2017, OUE). Local trust only
=====================  =======================================================================

Randomness. A seeded generator is for simulation: it protects nobody who knows the seed, and its
normal, Laplace and exponential draws are double precision (a candidate of probability below about
1e-16 is never drawn). None stands for the operating system's: then all draws come from
`samplers`, whose total variation of 2^-60 a value the plan counts into delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.privacy import samplers
from fedcal.privacy.bounding import Bound
from fedcal.secure_aggregation import Ring
from fedcal.types import Floats, Integers, Words

Mechanism = Literal[
    "none",
    "laplace",
    "gaussian",
    "discrete-laplace",
    "discrete-gaussian",
    "exponential",
    "unary",
]
LAPLACIAN = ("laplace", "discrete-laplace")
GAUSSIAN = ("gaussian", "discrete-gaussian")
DIVISIBLE = ("discrete-laplace", "discrete-gaussian")

TAIL = 9.2
"""No normal variate beyond so many stds is expected (probability 2**-60 each); room for it is
kept in the ring."""

LAPLACE_TAIL = 43.0
"""The same for a Laplace variate, in scales."""

SMOOTHING = 3.0
"""Steps of the grid by whose square the variance of a discrete Gaussian is raised."""

Source = np.random.Generator | None
"""A seeded generator, or None: the operating system."""


def gaussian_std(bound: Bound, multiplier: float) -> Floats:
    """Noise std of each coordinate of the sum, shape (length,)."""
    return bound.scale * (multiplier * bound.sensitivity)


def laplace_scale(bound: Bound, epsilon: float) -> Floats:
    """Laplace scale of each coordinate of the sum, shape (length,)."""
    return bound.scale * (bound.l1_sensitivity / epsilon)


@dataclass(frozen=True)
class Noise:
    """Integer noise for a vector, in steps of the ring's grid, or one of the shares of it.

    Attributes
    ----------
    mechanism : an additive one, or "unary"
    lengths : numbers in each block
    scales : of each block: Laplace scale or Gaussian std, in steps, of the whole noise; for
        "unary" the probability that a 0 becomes 1
    shares : how many draws add up to the whole; 1 = each draw is the whole
    """

    mechanism: Mechanism
    lengths: tuple[int, ...]
    scales: tuple[float, ...]
    shares: int = 1

    def __post_init__(self) -> None:
        one_of("noise", self.mechanism, (*LAPLACIAN, *GAUSSIAN, "unary"))
        if not self.lengths or any(n < 1 for n in self.lengths):
            raise InputError(f"noise needs blocks of length >= 1, got {self.lengths}")
        if len(self.scales) != len(self.lengths):
            raise InputError(f"noise for {len(self.lengths)} blocks has {len(self.scales)} scales")
        if not all(math.isfinite(s) and s > 0 for s in self.scales):
            raise InputError(f"scales of noise must be finite and > 0, got {self.scales}")
        if self.mechanism == "unary" and max(self.scales) >= 0.5:
            raise InputError(f"unary encoding turns a 0 with probability < 1/2, got {self.scales}")
        if self.shares < 1 or (self.shares > 1 and self.mechanism not in DIVISIBLE):
            raise InputError(f"'{self.mechanism}' cannot be drawn in {self.shares} shares")

    def draw(self, source: Source) -> Integers:
        """One share, shape (length,)."""
        parts = [
            self._block(scale, n, source)
            for scale, n in zip(self.scales, self.lengths, strict=True)
        ]
        return np.concatenate(parts)

    def _block(self, scale: float, n: int, source: Source) -> Integers:
        if source is not None:  # in double precision, several times as fast as the tables
            if self.mechanism == "gaussian":
                return np.rint(source.standard_normal(n) * scale).astype(np.int64)
            if self.mechanism == "laplace":
                return np.rint(source.laplace(0.0, scale, n)).astype(np.int64)
        words = words_of(source)
        if self.mechanism == "gaussian":
            return samplers.rounded_gaussian(scale, n, words)
        if self.mechanism == "laplace":
            return samplers.rounded_laplace(scale, n, words)
        if self.mechanism == "discrete-gaussian":
            return samplers.discrete_gaussian(scale / math.sqrt(self.shares), n, words)
        if self.mechanism == "discrete-laplace":
            if self.shares == 1:
                return samplers.discrete_laplace(scale, n, words)
            return samplers.polya_share(scale, self.shares, n, words)
        raise InputError(f"'{self.mechanism}' adds no noise")


def words_of(source: Source) -> samplers.Words:
    """Random words from a source."""
    return samplers.system_words if source is None else samplers.seeded_words(source)


def exponential(scores: Floats, epsilon: float, norm: float, source: Source) -> int:
    """Index drawn by the exponential mechanism, small |score| preferred.

    Parameters
    ----------
    scores : (candidates,) exact sums S_i
    epsilon : budget of this one draw
    norm : C, what one protected unit changes any S_i by
    """
    logits = -np.abs(scores) * (epsilon / (2.0 * norm))
    if source is None:
        return samplers.categorical(logits, samplers.system_words)
    weights = np.exp(logits - logits.max())
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, source.random() * cumulative[-1], side="right"))


def unary_flip(epsilon: float) -> float:
    """Probability that a 0 is sent as 1: 1 / (1 + e^epsilon), without forming a large power."""
    return math.exp(-epsilon) / (1.0 + math.exp(-epsilon))


def unary(words: Words, ring: Ring, flip: float, source: Source) -> Words:
    """Optimal unary encoding of a one-hot contribution, (length,) -> (length,).

    An all-zero contribution (no rows) is legal: it differs from any one-hot by one bit.

    Raises
    ------
    InputError
        If the contribution is not one-hot.
    """
    one = np.uint64(round(1.0 / ring.grid))
    set_ = words == one
    if set_.sum() > 1 or (words[~set_] != 0).any():
        raise InputError("unary encoding needs an answer with at most one 1 and zeros elsewhere")
    if source is None:
        keep = samplers.bernoulli(0.5, len(words), samplers.system_words)
        turn = samplers.bernoulli(flip, len(words), samplers.system_words)
    else:
        keep, turn = source.random(len(words)) < 0.5, source.random(len(words)) < flip
    return np.where(np.where(set_, keep, turn), one, np.uint64(0))


def unary_counts(total: Floats, repliers: int, flip: float) -> tuple[Floats, Floats]:
    """Unbiased counts and their noise std from the sum of `repliers` encoded answers, (length,).

    The std is `unary_std`.
    """
    values = (total - repliers * flip) / (0.5 - flip)
    return values, np.full(len(total), unary_std(repliers, flip))


def unary_std(repliers: int, flip: float) -> float:
    """Noise std of an unbiased count of a cell that nobody is in (Wang et al. 2017, Equation 6).

    What the variance gains with the true count is left out.
    """
    return math.sqrt(repliers * flip * (1.0 - flip)) / (0.5 - flip)
