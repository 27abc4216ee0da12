"""Base classes of mechanisms that add noise to sums: two families, by the norm they bound."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.accounting import check_delta, gaussian_multiplier
from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers, Words, override
from fedcal.mechanisms.base import Answers, Mechanism, Noise, Source, Sum, Target, View
from fedcal.mechanisms.pure_dp import PureDP
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound, Per

TAIL = 9.2
"""Largest normal variate, in stds, that the ring has capacity for (probability 2**-60 beyond)."""

LAPLACE_TAIL = 43.0
"""Largest Laplace variate, in scales, that the ring has capacity for."""

_EXAMPLES: tuple[Mapping[str, Any], ...] = (
    {"lengths": (1,), "norms": (2.5,)},
    {"lengths": (2, 3), "norms": (4.0, 0.5), "rule": "per_block"},
)


class Additive(Mechanism):
    """Mechanism that adds independent noise to each number of a sum."""

    answers: ClassVar[Answers] = "sum"
    part: ClassVar[Per | None] = None
    settles_replacement: ClassVar[bool] = False
    examples = _EXAMPLES
    root_variance: ClassVar[float]
    """Standard deviation of a variate of scale 1."""

    @classmethod
    @abstractmethod
    def steps(cls, scale: float) -> float:
        """Return the scale to draw, in steps, so that rounding to the grid costs no privacy."""

    @abstractmethod
    def log_likelihood_ratio(self, x: Floats, a: Floats, b: Floats, scales: Floats) -> Floats:
        """Return the log-likelihood ratio of sums `a` and `b` for each value, summed, (trials,)."""

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Accept every bound, as all go with noise on a sum."""

    @classmethod
    def in_shares(cls) -> type[Mechanism] | None:
        """Return the class itself if its noise is divisible, else None."""
        return cls if cls.divisible else None

    def sentence(self) -> str:
        """Return "", because the trust model says who adds the noise."""
        return ""

    def std(self, scales: Floats, noises: float, bound: Bound) -> Floats:
        """Return the std of independent noises, whose variances add up."""
        whole = np.repeat(scales, bound.lengths) * self.root_variance
        return np.asarray(whole * math.sqrt(noises))

    @override
    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        steps = tuple(self.steps(float(s) / grid) for s in scales)
        return Noise(type(self), bound.lengths, steps, shares)

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """Refuse shares of noise that is not divisible."""
        if noise.shares < 1 or (noise.shares > 1 and not cls.divisible):
            raise InputError(f"'{cls.name}' cannot be drawn in {noise.shares} shares")

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Return the contribution with a share of the noise added."""
        return ring.add(words, noise.draw(source))

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the noisy sums and their noise std."""
        return sums, of.std

    @classmethod
    def worst_pair(cls, bound: Bound, opposite: bool) -> tuple[Floats, Floats]:
        """Return a change that uses up both norms in the first number of each group."""
        change = np.zeros(bound.length)
        if bound.rule == "joint":
            change[0] = 1.0
        else:
            change[bound.firsts if bound.rule == "per_block" else slice(None)] = 1.0
        change *= bound.scale
        return change, -change if opposite else np.zeros_like(change)

    def attack(self, view: View) -> NDArray[np.float64]:
        """Return the log-likelihood ratio of all releases, or the number if there is only one."""
        noise, ring = view.noise, view.ring
        if noise is None:
            raise InputError(f"'{self.name}' adds no noise")
        a, b = ring.decode(view.words)
        scales = np.repeat(noise.scales, noise.lengths) * ring.grid
        seen = np.zeros(view.trials)
        for _ in range(view.rounds):
            mine = np.where(view.coins(), view.mine, np.uint64(0))
            for _ in range(view.shares):
                mine = ring.add(mine, _wide(noise, view.trials, view.source))
            x = ring.decode(mine)
            if view.rounds == 1 and view.bound.length == 1:
                return np.asarray(x[:, 0])
            ratio, rate = self.log_likelihood_ratio(x, a, b, scales), view.rate
            seen += ratio if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
        # values that are equal up to rounding must not become different events
        return np.asarray(np.round(seen, 9))


def _wide(noise: Noise, trials: int, source: Source) -> Integers:
    """Return `trials` draws of one noise, (trials, length), as one draw of longer blocks."""
    lengths = tuple(n * trials for n in noise.lengths)
    long = Noise(noise.law, lengths, noise.scales, noise.shares)
    blocks = np.split(long.draw(source), np.cumsum(lengths)[:-1])
    return np.concatenate([block.reshape(trials, -1) for block in blocks], axis=1)


@dataclass(frozen=True)
class Laplacian(PureDP, Additive):
    """Mechanisms of scale norm_b Delta_1 / epsilon, whose single releases are epsilon-DP."""

    order: ClassVar[Literal[1, 2]] = 1
    tailed: ClassVar[bool] = True
    root_variance: ClassVar[float] = math.sqrt(2.0)

    @classmethod
    def steps(cls, scale: float) -> float:
        """Return the scale itself: rounding costs nothing, and discrete noise is on the grid."""
        return scale

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Return norm_b Delta_1 / epsilon for each block."""
        whole = bound.scale * (bound.l1_sensitivity / (self.epsilon / diameter))
        return np.asarray(whole[bound.firsts])

    def tail(self, noises: float, alone: bool) -> float:
        """Return a bound beyond which a sum of n variates has a probability below 2**-60.

        The moment generating function of n variates at 1 / (2 scale) is (4/3)^n, so the bound is
        2 (LAPLACE_TAIL + 0.29 n) scales.
        """
        return LAPLACE_TAIL if alone else 2.0 * (LAPLACE_TAIL + 0.29 * noises)

    def draw_sum(self, total: Words, of: Sum, rng: np.random.Generator) -> Words:
        """Add about one Laplace variate, or the sum of many.

        A Laplace variate is the difference of two exponential variates, and so the sum of d Laplace
        variates is the difference of two Gamma(d) variates.
        """
        std = of.std / of.ring.grid
        if of.alone:
            drawn = rng.laplace(0.0, std / math.sqrt(2.0))
        else:
            many = max(of.repliers, 1)
            plus, minus = rng.standard_gamma(many, (2, len(std)))
            drawn = std / math.sqrt(2.0 * many) * (plus - minus)
        return of.ring.add(total, np.rint(drawn).astype(np.int64))

    @override
    def log_likelihood_ratio(self, x: Floats, a: Floats, b: Floats, scales: Floats) -> Floats:
        return np.asarray(((np.abs(x - b) - np.abs(x - a)) / scales).sum(axis=1))


@dataclass(frozen=True)
class GaussianFamily(Additive):
    """Mechanisms of std norm_b Delta_2 * multiplier; see `fedcal.accounting`."""

    multiplier: float

    order: ClassVar[Literal[1, 2]] = 2
    pure: ClassVar[bool] = False
    tailed: ClassVar[bool] = False
    root_variance: ClassVar[float] = 1.0

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Return the mechanism with the smallest multiplier for all rounds together."""
        check_delta(target.delta)
        delta = target.delta - target.slack
        return cls(gaussian_multiplier(target.epsilon, delta, target.rounds, target.rate))

    @property
    def key(self) -> tuple[float, float]:
        """Noise multiplier and 0."""
        return self.multiplier, 0.0

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Return norm_b Delta_2 times the multiplier for each block."""
        whole = bound.scale * (diameter * self.multiplier * bound.sensitivity)
        return np.asarray(whole[bound.firsts])

    def tail(self, noises: float, alone: bool) -> float:
        """Return a bound in which sums of normal variates are normal."""
        return TAIL * math.sqrt(noises)

    def draw_sum(self, total: Words, of: Sum, rng: np.random.Generator) -> Words:
        """Add one normal variate to each number."""
        drawn = of.std / of.ring.grid * rng.standard_normal(len(of.std))
        return of.ring.add(total, np.rint(drawn).astype(np.int64))

    @override
    def log_likelihood_ratio(self, x: Floats, a: Floats, b: Floats, scales: Floats) -> Floats:
        return np.asarray(((x - (a + b) / 2) * (a - b) / scales**2).sum(axis=1))
