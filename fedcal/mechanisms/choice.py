"""Draw of one index out of many, with probabilities given by their logarithms; see `samplers`.

It multiplies Python integers and searches their sums: its time depends slightly on the weights,
that is on private scores.

The exponential mechanism: one of several candidates is drawn.

Optimal unary encoding: a one-hot answer, bit by bit.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedcal.core.checks import InputError, same
from fedcal.core.numerics import Floats, Words
from fedcal.mechanisms import samplers
from fedcal.mechanisms.base import Answers, Mechanism, Noise, Source, Sum, words_of
from fedcal.secure_aggregation import Ring
from fedcal.units import SLACK, Bound, Per

_MOST = 65536
_BITS = 192  # of the fixed point in which weights are multiplied; 60 digits are 199 bits
_BYTES = 16  # after the point of an exponent
_NEVER = 100.0  # exp(-100) < 2**-128


def categorical(log_weights: ArrayLike, words: samplers.Words) -> int:
    """Return an index i with probability ~ exp(log_weights[i]).

    Parameters
    ----------
    log_weights
        (candidates,) up to 65536 doubles, each standing for its exact binary value;
        -inf is a candidate that is never drawn

    Raises
    ------
    InputError
        If there are no candidates or too many, or a log weight is nan or +inf, or all are -inf.

    Notes
    -----
    Weights are within 3 * 2**-128 of the largest weight, so at most 65536 * 3 * 2**-128 < 2**-110
    of total variation is moved. A log weight that was computed in doubles has a relative error of
    1e-16 before it arrives here. That is an error of the caller's epsilon, not of this draw.
    """
    logs = np.asarray(log_weights, np.float64)
    fits = logs.ndim == 1 and 1 <= len(logs) <= _MOST
    if not fits or np.isnan(logs).any() or not np.isfinite(logs.max()):
        raise InputError(
            f"log weights must be 1 to {_MOST} numbers, finite or -inf, and not all of them -inf"
        )
    sums = list(accumulate(_weights(logs)))
    uniform = int.from_bytes(words(4).tobytes(), "little")
    return bisect_right(sums, uniform * sums[-1] >> 256)


def _weights(logs: Floats) -> list[int]:
    """Return exp(logs - max(logs)) in units of 2**-128.

    Each byte of the exponent selects a factor from its own table: the same multiplications
    for every candidate.
    """
    top = logs.max()
    with np.errstate(over="ignore"):  # a gap beyond all floats is never drawn either
        drawn = top - logs <= _NEVER
    value = np.where(drawn, logs, top)
    # The gap as a sum of two doubles, exactly (Knuth's TwoSum); each is cut to 128 bits.
    gap = top - value
    virtual = gap - top
    error = (top - (gap - virtual)) - (value + virtual)
    unit = 2.0 ** (8 * _BYTES)
    tables = _factors()
    weights = []
    for a, b, possible in zip(
        (gap * unit).tolist(), (error * unit).tolist(), drawn.tolist(), strict=True
    ):
        exponent = int(a) + int(b)
        weight = 2**_BITS
        for table, byte in zip(tables, exponent.to_bytes(_BYTES + 1, "little"), strict=True):
            weight = weight * table[byte] >> _BITS
        weights.append((weight >> _BITS - samplers.UNITS) * possible)
    return weights


@lru_cache(maxsize=1)
def _factors() -> tuple[tuple[int, ...], ...]:
    """Return tables: entry b of table j is exp(-b * 256**(j - 16)) in units of 2**-192."""
    with samplers.exact():
        steps = [Decimal(256) ** (j - _BYTES) for j in range(_BYTES + 1)]
        return tuple(tuple(int((-b * step).exp() * 2**_BITS) for b in range(256)) for step in steps)


@dataclass(frozen=True)
class Exponential(Mechanism):
    """Draw of index i with probability ~ `exp(-epsilon |S_i| / (2 C))`.

    Neighbours differ in `|S_i|` by at most C. It is epsilon-DP (McSherry & Talwar 2007; Asi & Duchi
    2020). Only the index is released. The server must have the exact sums. A question may have its
    own costs in place of `|S_i|` (`Query.costs`): it is enough that the changes of any two costs by
    a neighbour differ by at most 2 C (bounded range, Dong, Durfee & Rogers 2020).
    """

    name: ClassVar[str] = "exponential"
    meaning: ClassVar[str] = "exponential mechanism: one of several candidates is drawn"
    answers: ClassVar[Answers] = "index"
    examples = ({"lengths": (20,), "norms": (2.5,), "rule": "per_value"},)

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Require one draw, and a bound for each candidate."""
        same("number of rounds of the exponential mechanism", rounds, 1)
        if bound.rule == "joint" or (bound.rule == "per_block" and bound.order != 1):
            raise InputError("the exponential mechanism needs a bound for each candidate")

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the drawn index, (1,), and no std."""
        norm = max(of.bound.norms) * of.diameter
        costs = None if of.costs is None else of.costs(sums)
        scores = scores_of(sums, of.bound) if costs is None else costs
        index = draw_index(scores, self.epsilon, norm, source())
        return np.array([float(index)]), np.zeros(0)


def scores_of(sums: Floats, bound: Bound) -> Floats:
    """Return the candidates' scores, which are sums of absolute values.

    Each number is a candidate (rule "per_value"), or each block (rule "per_block", order 1).
    """
    if bound.rule == "per_value":
        return np.abs(sums)
    return np.asarray(np.add.reduceat(np.abs(sums), bound.firsts))


def draw_index(scores: Floats, epsilon: float, norm: float, source: Source) -> int:
    """Return an index drawn by the exponential mechanism, small |score| preferred.

    Parameters
    ----------
    scores
        (candidates,) exact sums S_i
    epsilon
        budget of this one draw
    norm
        C, largest change of any S_i by one protected unit
    """
    logits = -np.abs(scores) * (epsilon / (2.0 * norm))
    if source is None:
        return categorical(logits, samplers.system_words)
    weights = np.exp(logits - logits.max())
    return int(source.choice(len(weights), p=weights / weights.sum()))


@dataclass(frozen=True)
class Unary(Mechanism):
    """Unary encoding: a 1 stays with probability 1/2, a 0 becomes 1 with 1 / (1 + e^epsilon).

    It is epsilon-DP for one client's answer replaced by any other (Wang et al. 2017, OUE). Each
    client encodes its own answer, so no other party needs to be trusted.
    """

    name: ClassVar[str] = "unary"
    meaning: ClassVar[str] = "optimal unary encoding: each bit of an answer is randomised"
    answers: ClassVar[Answers] = "onehot"
    part: ClassVar[Per | None] = "client"
    settles_replacement: ClassVar[bool] = True
    examples = ({"lengths": (4,), "norms": (2.5,), "rule": "per_value"},)

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Require a bound that does not clip the 1."""
        if min(bound.norms) * (1.0 - SLACK) < 1.0:
            raise InputError(
                f"unary encoding needs clip norms above 1 (such as 2), got {bound.norms}: "
                "at a norm of 1 a 1 would be clipped to less and truncated to 0"
            )

    def std(self, scales: Floats, noise_copies: float, bound: Bound, grid: float = 0.0) -> Floats:
        """Return the std of an unbiased count of an empty cell (Wang et al. 2017, Equation 6).

        The growth of the variance with the true count is neglected. `noise_copies` is the number of
        answers.
        """
        flip = unary_flip(self.epsilon)
        return np.full(bound.length, math.sqrt(noise_copies * flip * (1.0 - flip)) / (0.5 - flip))

    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        """Return noise whose one scale is the probability that a 0 is flipped."""
        return Noise(type(self), (bound.length,), (unary_flip(self.epsilon),))

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """Require a flip probability below 1/2, and no shares."""
        if max(noise.scales) >= 0.5 or noise.shares != 1:
            given = f"got {noise.scales} in {noise.shares} shares"
            raise InputError(
                f"unary encoding flips a 0 with probability < 1/2, in 1 share, {given}"
            )

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Return the encoded answer, (length,).

        An all-zero contribution (no rows) is legal: it differs from any one-hot answer by one bit.

        Raises
        ------
        InputError
            If the contribution is not one-hot.
        """
        one, flip = np.uint64(round(1.0 / ring.grid)), noise.scales[0]
        set_ = words == one
        if set_.sum() > 1 or (words[~set_] != 0).any():
            raise InputError(
                "unary encoding needs an answer with at most one 1 and zeros elsewhere"
            )
        drawn = words_of(source)
        keep, turn = (samplers.bernoulli(p, len(words), drawn) for p in (0.5, flip))
        return np.where(np.where(set_, keep, turn), one, np.uint64(0))

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return unbiased counts and their noise std from the sum of encoded answers, (length,)."""
        flip = unary_flip(self.epsilon)
        return (sums - of.repliers * flip) / (0.5 - flip), of.std


def unary_flip(epsilon: float) -> float:
    """Return the probability that a 0 is sent as 1, 1 / (1 + e^epsilon), without a large power."""
    return math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
