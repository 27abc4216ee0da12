"""What mechanisms share that need no delta: each release spends an epsilon of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from fedcal.accounting import exponential_epsilon
from fedcal.mechanisms.base import Mechanism, Target


@dataclass(frozen=True)
class PureDP(Mechanism):
    """Each release is epsilon-DP by itself."""

    epsilon: float

    pure: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Basic composition, amplified: an equal part of epsilon for each release."""
        return cls(exponential_epsilon(target.epsilon / target.rounds, target.rate))

    @property
    def key(self) -> tuple[float, float]:
        """Its epsilon."""
        return 0.0, self.epsilon

    @property
    def event(self) -> str:
        """Its epsilon."""
        return f"{self.name}(epsilon={self.epsilon!r})"
