"""Mechanisms that add noise to sums: Gaussian and Laplace."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from fedcal.core.numerics import Floats, Integers, Words, override
from fedcal.mechanisms import samplers
from fedcal.mechanisms.base import Answers, Mechanism, Noise, Source, Sum, Target, words_of
from fedcal.secure_aggregation import Ring
from fedcal.units import Bound


class Additive(Mechanism):
    """Mechanism that adds independent noise to each number of a sum."""

    answers: ClassVar[Answers] = "sum"
    examples = (
        {"lengths": (1,), "norms": (2.5,)},
        {"lengths": (2, 3), "norms": (4.0, 0.5), "rule": "per_block"},
    )

    @classmethod
    @abstractmethod
    def steps(cls, scale: float) -> float:
        """Return the scale to draw, in steps, so that rounding to the grid costs no privacy."""

    @override
    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        steps = tuple(self.steps(float(s) / grid) for s in scales)
        return Noise(type(self), bound.lengths, steps, shares)

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """Accept all noise, as it can be drawn in any number of shares."""

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Return the contribution with a share of the noise added."""
        return ring.add(words, noise.draw(source))

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the noisy sums and their noise std."""
        return sums, of.std


SMOOTHING = 3.0
"""Steps of the grid whose square is added to the variance of a discrete Gaussian."""

_MANY_STEPS = 1000.0
"""Std, in steps, from which on a rounded normal variate is as good as a discrete one."""

_NORMAL_TAIL = 9.2
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
    meaning: ClassVar[str] = "discrete Gaussian noise"
    pure: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Return the mechanism with the smallest multiplier for all rounds together."""
        from fedcal.accounting import check_delta, gaussian_multiplier

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
        scales = bound.scale * (diameter * self.multiplier * bound.sensitivity)
        return np.asarray(scales[bound.firsts])

    @override
    def std(self, scales: Floats, noise_copies: float, bound: Bound, grid: float = 0.0) -> Floats:
        return np.asarray(np.repeat(scales, bound.lengths) * math.sqrt(noise_copies))

    def tail(self, noise_copies: float) -> float:
        """Return a bound in which sums of normal variates are normal."""
        return _NORMAL_TAIL * math.sqrt(noise_copies)

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
        from fedcal.mechanisms.gaussian_sampler import discrete_gaussian

        return discrete_gaussian(scale / math.sqrt(shares), n, words_of(source))


_LAPLACE_TAIL = 43.0
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
    meaning: ClassVar[str] = "discrete Laplace noise"
    order: ClassVar[Literal[1, 2]] = 1
    tailed: ClassVar[bool] = True
    least_integer_scale: ClassVar[float] = samplers.LEAST_LAPLACE

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Return norm_b Delta_1 / epsilon for each block."""
        scales = bound.scale * (bound.l1_sensitivity / (self.epsilon / diameter))
        return np.asarray(scales[bound.firsts])

    @override
    def std(self, scales: Floats, noise_copies: float, bound: Bound, grid: float = 0.0) -> Floats:
        """Return the exact std, grid / (sqrt(2) sinh(grid / (2 scale))) of one complete noise."""
        each = np.repeat(scales, bound.lengths)
        one = grid / (math.sqrt(2.0) * np.sinh(grid / (2.0 * each))) if grid else math.sqrt(2.0)
        return np.asarray((one if grid else one * each) * math.sqrt(noise_copies))

    def tail(self, noise_copies: float) -> float:
        """Return a bound beyond which a sum of n variates has a probability below 2**-60.

        The moment generating function of n variates at 1 / (2 scale) is at most (4/3)^n, so the
        bound is 2 (_LAPLACE_TAIL + 0.29 n) scales.
        """
        return _LAPLACE_TAIL if noise_copies == 1 else 2.0 * (_LAPLACE_TAIL + 0.29 * noise_copies)

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
