"""Base class of mechanisms that add no noise: nothing is scaled, drawn or sent."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers, Words, override
from fedcal.mechanisms.base import Mechanism, Noise, Source, Sum
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound


class AddsNothing(Mechanism):
    """Mechanism under which sums stay exact until `release`, unless a subclass overrides this."""

    order: ClassVar[Literal[1, 2]] = 2
    divisible: ClassVar[bool] = False
    tailed: ClassVar[bool] = False

    @classmethod
    def in_shares(cls) -> type[Mechanism] | None:
        """Return None: without noise there are no shares."""
        return None

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Return no scales, because no noise is added to sums."""
        return np.zeros(0)

    @override
    def std(self, scales: Floats, noises: float, bound: Bound) -> Floats:
        return np.zeros(bound.length)

    @override
    def tail(self, noises: float, alone: bool) -> float:
        return 0.0

    @override
    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        return None

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """Raise InputError, because the mechanism has no noise."""
        raise InputError(f"unknown noise {cls.name!r}: it adds none")

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Raise InputError, because the mechanism has no noise."""
        raise InputError(f"'{cls.name}' adds no noise")

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Raise InputError, because the mechanism has no noise."""
        raise InputError(f"'{cls.name}' adds no noise")

    def draw_sum(self, total: Words, of: Sum, rng: np.random.Generator) -> Words:
        """Return the exact sum unchanged."""
        return total
