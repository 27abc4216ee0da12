"""Base class of mechanisms that add noise to sums."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Words, override
from fedcal.mechanisms.base import Answers, Mechanism, Noise, Source, Sum
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound

_EXAMPLES: tuple[Mapping[str, Any], ...] = (
    {"lengths": (1,), "norms": (2.5,)},
    {"lengths": (2, 3), "norms": (4.0, 0.5), "rule": "per_block"},
)


class Additive(Mechanism):
    """Mechanism that adds independent noise to each number of a sum."""

    answers: ClassVar[Answers] = "sum"
    examples = _EXAMPLES

    @classmethod
    @abstractmethod
    def steps(cls, scale: float) -> float:
        """Return the scale to draw, in steps, so that rounding to the grid costs no privacy."""

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Accept every bound, as all go with noise on a sum."""

    def sentence(self) -> str:
        """Return "", because the trust model says who adds the noise."""
        return ""

    @override
    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        steps = tuple(self.steps(float(s) / grid) for s in scales)
        return Noise(type(self), bound.lengths, steps, shares)

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """Refuse a number of shares below 1."""
        if noise.shares < 1:
            raise InputError(f"'{cls.name}' cannot be drawn in {noise.shares} shares")

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Return the contribution with a share of the noise added."""
        return ring.add(words, noise.draw(source))

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the noisy sums and their noise std."""
        return sums, of.std
