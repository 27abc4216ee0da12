"""Laplace noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedcal.core.types import Floats, Integers, override
from fedcal.mechanisms import samplers
from fedcal.mechanisms.additive import Additive
from fedcal.mechanisms.base import Source, words_of
from fedcal.mechanisms.noise_law import NoiseLaw
from fedcal.units.bounding import Bound

TAIL = 43.0
"""Largest Laplace variate, in scales, that the ring has capacity for."""


@dataclass(frozen=True)
class Laplace(Additive):
    """Discrete Laplace noise, `P(k) ~ exp(-|k| / scale)` in steps of the grid: epsilon-DP.

    Source: Ghosh et al. 2009. The scale is norm_b Delta_1 / epsilon, of which norm_b / step is
    all that neighbours differ by in steps, so that a likelihood ratio is at most e^epsilon. The
    step is 1 where every addend is an integer (`Bound.whole`): there the noise has a smaller
    variance than continuous noise of this scale; elsewhere it is so fine that both are alike.

    A draw is a sum of n Polya differences, so each of n clients can add a share.
    """

    name: ClassVar[str] = "laplace"
    noise: ClassVar[str] = "Laplace noise"
    meaning: ClassVar[str] = "discrete Laplace noise"
    order: ClassVar[Literal[1, 2]] = 1
    tailed: ClassVar[bool] = True
    least_integer_scale: ClassVar[float] = samplers.LEAST_LAPLACE

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Return norm_b Delta_1 / epsilon for each block."""
        whole = bound.scale * (bound.l1_sensitivity / (self.epsilon / diameter))
        return np.asarray(whole[bound.firsts])

    @override
    def std(self, scales: Floats, noises: float, bound: Bound, grid: float = 0.0) -> Floats:
        """Return the exact std, grid / (sqrt(2) sinh(grid / (2 scale))) of one complete noise."""
        whole = np.repeat(scales, bound.lengths)
        one = grid / (math.sqrt(2.0) * np.sinh(grid / (2.0 * whole))) if grid else math.sqrt(2.0)
        return np.asarray((one if grid else one * whole) * math.sqrt(noises))

    @override
    def law(self, noises: float, step: float) -> NoiseLaw:
        return NoiseLaw(True, noises, step)

    def tail(self, noises: float) -> float:
        """Return a bound beyond which a sum of n variates has a probability below 2**-60.

        The moment generating function of n variates at 1 / (2 scale) is at most (4/3)^n, so the
        bound is 2 (TAIL + 0.29 n) scales.
        """
        return TAIL if noises == 1 else 2.0 * (TAIL + 0.29 * noises)

    @classmethod
    def steps(cls, scale: float) -> float:
        """Return the scale itself, because the noise is on the grid."""
        return scale

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Return complete draws, or Polya shares."""
        if shares == 1:
            return samplers.discrete_laplace(scale, n, words_of(source))
        return samplers.polya_share(scale, shares, n, words_of(source))
