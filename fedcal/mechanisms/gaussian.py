"""Gaussian noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedcal.core.types import Integers, override
from fedcal.mechanisms import samplers
from fedcal.mechanisms.additive import GaussianFamily
from fedcal.mechanisms.base import Mechanism, Source, words_of
from fedcal.mechanisms.discrete_gaussian import DiscreteGaussian


class Gaussian(GaussianFamily):
    """Gaussian noise, rounded to the grid: a Gaussian mechanism with its multiplier."""

    name: ClassVar[str] = "gaussian"
    noise: ClassVar[str] = "Gaussian noise"
    meaning: ClassVar[str] = "Gaussian noise"
    divisible: ClassVar[bool] = False

    @classmethod
    def in_shares(cls) -> type[Mechanism] | None:
        """Return the discrete mechanism."""
        return DiscreteGaussian

    @property
    @override
    def event(self) -> str:
        return f"Gaussian(multiplier={self.multiplier!r})"

    @classmethod
    def steps(cls, scale: float) -> float:
        """Return the scale itself, because rounding afterwards costs nothing."""
        return scale

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Return draws; with a seed they are in double precision, several times as fast."""
        if source is not None:
            return np.rint(source.standard_normal(n) * scale).astype(np.int64)
        return samplers.rounded_gaussian(scale, n, words_of(source))
