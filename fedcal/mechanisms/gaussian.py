"""Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fedcal.accounting import check_delta, gaussian_multiplier
from fedcal.core.types import Floats, Integers, override
from fedcal.mechanisms import samplers
from fedcal.mechanisms.additive import Additive
from fedcal.mechanisms.base import Source, Target, words_of
from fedcal.mechanisms.noise_law import NoiseLaw
from fedcal.units.bounding import Bound

SMOOTHING = 3.0
"""Steps of the grid whose square is added to the variance of a discrete Gaussian."""

_MANY_STEPS = 1000.0
"""Std, in steps, from which on a rounded normal variate is as good as a discrete one."""

TAIL = 9.2
"""Largest normal variate, in stds, that the ring has capacity for (probability 2**-60 beyond)."""


@dataclass(frozen=True)
class Gaussian(Additive):
    """Discrete Gaussian noise, P(k) ~ exp(-k^2 / 2 std^2) in steps of a fine grid.

    The std is s = norm_b Delta_2 * multiplier; see `fedcal.accounting`. With std^2 = s^2 + 9
    steps^2 it is a randomised rounding of a continuous Gaussian of std s (Peikert 2010, Theorem
    3.1: total variation < 2^-200 a value), so it inherits its guarantee. n shares of variance
    std^2 / n, each of at least 3 steps, add up to it within 2^-100 (Kairouz, Liu & Steinke 2021:
    their tau).
    """

    name: ClassVar[str] = "gaussian"
    noise: ClassVar[str] = "Gaussian noise"
    meaning: ClassVar[str] = "discrete Gaussian noise"
    pure: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Return the mechanism with the smallest multiplier for all rounds together."""
        check_delta(target.delta)
        delta = target.delta - target.slack
        most = gaussian_multiplier(target.epsilon, delta, target.rounds, target.rate)
        return cls(multiplier=most)

    @property
    @override
    def event(self) -> str:
        return f"Gaussian(multiplier={self.multiplier!r})"

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Return norm_b Delta_2 times the multiplier for each block."""
        whole = bound.scale * (diameter * self.multiplier * bound.sensitivity)
        return np.asarray(whole[bound.firsts])

    @override
    def std(self, scales: Floats, noises: float, bound: Bound, grid: float = 0.0) -> Floats:
        return np.asarray(np.repeat(scales, bound.lengths) * math.sqrt(noises))

    @override
    def law(self, noises: float, step: float) -> NoiseLaw:
        return NoiseLaw()

    def tail(self, noises: float) -> float:
        """Return a bound in which sums of normal variates are normal."""
        return TAIL * math.sqrt(noises)

    @classmethod
    def steps(cls, scale: float) -> float:
        """Return the scale smoothed by three steps."""
        return math.hypot(scale, SMOOTHING)

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Return draws, of which each share has an equal part of the variance.

        With a seed complete draws of many steps are rounded normal variates in double precision,
        which are drawn faster.
        """
        if source is not None and shares == 1 and scale > _MANY_STEPS:
            return np.rint(source.standard_normal(n) * scale).astype(np.int64)
        return samplers.discrete_gaussian(scale / math.sqrt(shares), n, words_of(source))
