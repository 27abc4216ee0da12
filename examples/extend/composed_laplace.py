"""Laplace noise with optimal composition, for a delta."""

from __future__ import annotations

import math
from typing import ClassVar, Self

from scipy.special import bdtrc

from fedcal.accounting import check_delta, exponential_epsilon
from fedcal.mechanisms.additive import Laplace
from fedcal.mechanisms.base import Target

_STEPS = 60


class ComposedLaplace(Laplace):
    """Laplace noise; all releases of a run together are (epsilon, delta)-DP.

    Each release is e-DP, and so no worse than randomised response with e. The privacy of that,
    composed, is a difference of two binomial tails: Kairouz, Oh & Viswanath 2015 (The composition
    theorem for differential privacy), Theorem 3.3. Queries may depend on earlier releases.
    """

    name: ClassVar[str] = "composed-laplace"
    meaning: ClassVar[str] = "Laplace noise with optimal composition of the releases, for a delta"
    pure: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Return the mechanism with the largest e per release, found by bisection; amplified."""
        check_delta(target.delta)
        low, high = target.epsilon / target.rounds, target.epsilon
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if composed_delta(target.epsilon, middle, target.rounds) <= target.delta - target.slack:
                low = middle
            else:
                high = middle
        return cls(exponential_epsilon(low, target.rate))


def composed_delta(epsilon: float, each: float, rounds: int) -> float:
    """Return delta at epsilon of `rounds` releases that are `each`-DP, to about 12 digits."""
    limit = math.floor((rounds + epsilon / each) / 2)  # more equal outcomes exceed epsilon
    tail = bdtrc(limit, rounds, 1 / (1 + math.exp(-each)))
    other_tail = bdtrc(limit, rounds, 1 / (1 + math.exp(min(each, 700.0))))
    return float(tail - math.exp(min(epsilon, 700.0)) * other_tail)
