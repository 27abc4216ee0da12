"""Discrete Gaussian noise, complete or in shares."""

from __future__ import annotations

import math
from typing import ClassVar

from fedcal.core.types import Integers, override
from fedcal.mechanisms import samplers
from fedcal.mechanisms.additive import GaussianFamily
from fedcal.mechanisms.base import Source, words_of

SMOOTHING = 3.0
"""Steps of the grid whose square is added to the variance of a discrete Gaussian."""


class DiscreteGaussian(GaussianFamily):
    """Discrete Gaussian noise, P(k) ~ exp(-k^2 / 2 std^2) on the grid.

    With std^2 = s^2 + 9 steps^2 it is a randomised rounding of a continuous Gaussian of std s
    (Peikert 2010, Theorem 3.1: total variation < 2^-200 a value), so it inherits its
    guarantee. n shares of variance std^2 / n, each of at least 3 steps, add up to it within 2^-100
    (Kairouz, Liu & Steinke 2021: their tau).
    """

    name: ClassVar[str] = "discrete-gaussian"
    noise: ClassVar[str] = "discrete Gaussian noise"
    meaning: ClassVar[str] = "discrete Gaussian noise"
    divisible: ClassVar[bool] = True

    @property
    @override
    def event(self) -> str:
        return f"discrete Gaussian(multiplier={self.multiplier!r})"

    @classmethod
    def steps(cls, scale: float) -> float:
        """Return the scale smoothed by three steps."""
        return math.hypot(scale, SMOOTHING)

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Return draws, of which each share has an equal part of the variance."""
        return samplers.discrete_gaussian(scale / math.sqrt(shares), n, words_of(source))
