"""Base class of mechanisms that need no delta: each release spends its own epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from fedcal.accounting import exponential_epsilon
from fedcal.core.types import override
from fedcal.mechanisms.base import Mechanism, Target


@dataclass(frozen=True)
class PureDP(Mechanism):
    """Mechanism whose single releases are epsilon-DP."""

    epsilon: float

    pure: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Return the mechanism with an equal part of epsilon for each release, amplified."""
        return cls(exponential_epsilon(target.epsilon / target.rounds, target.rate))

    @property
    def key(self) -> tuple[float, float]:
        """Multiplier 0, and the epsilon of each release."""
        return 0.0, self.epsilon

    @property
    @override
    def event(self) -> str:
        return f"{self.name}(epsilon={self.epsilon!r})"
