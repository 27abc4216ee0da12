"""What mechanisms share that add no noise to anything: nothing is scaled, drawn or sent."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers, Words
from fedcal.mechanisms.base import Mechanism, Noise, Source, Sum
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound


class AddsNothing(Mechanism):
    """Sums stay exact until `release`, where a kind of it does not say otherwise."""

    order: ClassVar[Literal[1, 2]] = 2
    divisible: ClassVar[bool] = False
    tailed: ClassVar[bool] = False

    @classmethod
    def in_shares(cls) -> type[Mechanism] | None:
        """There is nothing to share."""
        return None

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """No noise is added to sums."""
        return np.zeros(0)

    def std(self, scales: Floats, noises: float, bound: Bound) -> Floats:
        """Exact sums."""
        return np.zeros(bound.length)

    def tail(self, noises: float, alone: bool) -> float:
        """Nothing is added."""
        return 0.0

    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        """Nothing is added."""
        return None

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """No noise is of this mechanism."""
        raise InputError(f"unknown noise {cls.name!r}: it adds none")

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Nothing is added."""
        raise InputError(f"'{cls.name}' adds no noise")

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Nothing is added."""
        raise InputError(f"'{cls.name}' adds no noise")

    def draw_sum(self, total: Words, of: Sum, rng: np.random.Generator) -> Words:
        """Exact sums."""
        return total
