"""Optimal unary encoding: a one-hot answer, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Words, override
from fedcal.mechanisms import samplers
from fedcal.mechanisms.base import Answers, Mechanism, Noise, Source, Sum
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import SLACK, Bound, Per


@dataclass(frozen=True)
class Unary(Mechanism):
    """Unary encoding: a 1 stays with probability 1/2, a 0 becomes 1 with 1 / (1 + e^epsilon).

    It is epsilon-DP for one client's answer replaced by any other (Wang et al. 2017, OUE). Each
    client encodes its own answer, so no other party needs to be trusted.
    """

    name: ClassVar[str] = "unary"
    noise: ClassVar[str] = "unary encoding"
    meaning: ClassVar[str] = "optimal unary encoding: each bit of an answer is randomised"
    answers: ClassVar[Answers] = "onehot"
    part: ClassVar[Per | None] = "client"
    settles_replacement: ClassVar[bool] = True
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"lengths": (4,), "norms": (2.5,), "rule": "per_value"},
    )

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Require a bound that does not clip the 1."""
        if min(bound.norms) * (1.0 - SLACK) < 1.0:
            raise InputError(
                f"unary encoding needs clip norms above 1 (such as 2), got {bound.norms}: "
                "at a norm of 1 a 1 would be clipped to less and truncated to 0"
            )

    @override
    def sentence(self) -> str:
        return (
            "Each client sends its answer, a single 1 among zeros, bit by bit (optimal unary "
            "encoding): a 1 stays with probability 1/2, a 0 becomes 1 with probability "
            f"{unary_flip(self.epsilon):.4g}. noise_std is for the count of an empty cell"
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
        if source is None:
            keep = samplers.bernoulli(0.5, len(words), samplers.system_words)
            turn = samplers.bernoulli(flip, len(words), samplers.system_words)
        else:
            keep, turn = source.random(len(words)) < 0.5, source.random(len(words)) < flip
        return np.where(np.where(set_, keep, turn), one, np.uint64(0))

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return unbiased counts and their noise std from the sum of encoded answers, (length,)."""
        flip = unary_flip(self.epsilon)
        return (sums - of.repliers * flip) / (0.5 - flip), of.std


def unary_flip(epsilon: float) -> float:
    """Return the probability that a 0 is sent as 1, 1 / (1 + e^epsilon), without a large power."""
    return math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
