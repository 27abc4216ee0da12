"""The law of the noise in a released number, for intervals and tests of what is read from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from scipy.special import erf, gammaincinv

from fedcal.core.checks import damaged
from fedcal.core.numerics import Floats

_FINE = 1 / 64
"""Step, in stds, below which the law of a sum is taken for continuous."""

_MANY = 20.0
"""Complete draws from which on a law without steps is normal, but for its kurtosis."""

_COARSE, _PARTS = 0.25, 16
"""Step of a sum, in stds, from which on its law is computed by its weights, in parts of a step."""

_OUTWARD = 1.0 + 1e-9
"""Factor that keeps a possible value of the noise inside an interval that ends there."""

_TINY = 1e-300
_REACH, _NODES, _HALVINGS = 64.0, 512, 40


@dataclass(frozen=True)
class NoiseDistribution:
    """Law of a variate of mean 0 and variance 1: normal, or a sum of complete Laplace draws.

    Attributes
    ----------
    tailed
        whether a complete draw is Laplace; else the variate is normal
    draws
        complete draws in it: 1, or one for each client, or a fraction more, where more clients than
        were needed added shares of the noise
    step
        distance of its possible values, in stds, where the noise is on integers; 0 = continuous

    With d draws on a lattice of steps h it is h times the difference of two negative binomial
    variates of shape d, and K(t) = -d log(1 - (cosh(h t) - 1) / (d h^2)).
    """

    tailed: bool = False
    draws: float = 1.0
    step: float = 0.0

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the law from the JSON of `to_json`, or from its name in files of earlier versions.

        Raises InputError for anything else.
        """
        if text in ("normal", "double-exponential"):
            return cls(text != "normal")
        with damaged(f"unknown law of noise {text[:80]!r}"):
            return cls.of_json(json.loads(text))

    @classmethod
    def of_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the law of `to_json` values, which other values may stand beside."""
        draws, step = float(plain["draws"]), float(plain.get("step", 0.0))
        if not (0 < draws < math.inf and 0 <= step < math.inf):
            raise ValueError("a law of noise needs draws > 0 and a step >= 0")
        return cls(bool(plain["tailed"]), draws, step)

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)

    def of_sum(self, weights: Floats) -> NoiseDistribution:
        """Return the law of a weighted sum of such variates, by its variance and kurtosis.

        It is exact for equal weights, and so for a single number.
        """
        squares = np.square(np.asarray(weights, np.float64).ravel())
        largest = float(squares.max(initial=0.0))
        if not self.tailed or largest == 0:
            return self
        squares = squares / largest
        return self.times(float(f"{squares.sum() ** 2 / np.square(squares).sum():.3g}"))

    def times(self, number: float) -> NoiseDistribution:
        """Return the law of the sum of so many equal variates, at variance 1."""
        if not self.tailed:
            return self
        return replace(self, draws=self.draws * number, step=self.step / math.sqrt(number))

    def quantile(self, level: float) -> float:
        """Return the least x with `P(|Z| <= x) >= level`."""
        return _quantile(self, level)

    def widening(self, weights: Floats, level: float) -> float:
        """Return the factor, at least 1, by which a normal interval for a weighted sum is short."""
        if not self.tailed:
            return 1.0
        sizes = np.abs(np.asarray(weights, np.float64).ravel())
        if not sizes.any():
            return 1.0
        distribution = self.of_sum(sizes)
        reach = distribution.quantile(level)
        if distribution.step > _COARSE:  # the steps of unequal weights differ
            parts, often = np.unique(np.rint(_PARTS * sizes / sizes.max()), return_counts=True)
            unit = self.step * sizes.max() / (_PARTS * float(np.linalg.norm(sizes)))
            reach = unit * (_steps_of(self, tuple(parts), tuple(often), level) + (len(parts) > 1))
        return max(1.0, reach / NormalDist().inv_cdf(0.5 + level / 2) * _OUTWARD)

    def log_moments(self, t: Floats) -> tuple[Floats, Floats, Floats]:
        """Return K(t), K'(t) and K''(t) of Laplace noise; K is infinite from `limit` on."""
        h, d = self.step, self.draws
        if h:
            rise = 2 * np.sinh(h * t / 2) ** 2 / h**2
            lean, bend = np.sinh(h * t) / h, np.cosh(h * t)
        else:
            rise, lean, bend = t**2 / 2, t, np.ones_like(t)
        left = 1 - rise / d
        return -d * np.log(left), lean / left, bend / left + lean**2 / (d * left**2)

    def log_waves(self, t: Floats) -> Floats:
        """Return the log of the characteristic function of Laplace noise, which is positive."""
        rise = 2 * np.sin(self.step * t / 2) ** 2 / self.step**2 if self.step else t**2 / 2
        return np.asarray(-self.draws * np.log1p(rise / self.draws))

    @property
    def limit(self) -> float:
        """Least t > 0 at which K(t) is infinite."""
        if not self.step:
            return math.sqrt(2.0 * self.draws)
        return 2.0 * math.asinh(self.step * math.sqrt(self.draws / 2.0)) / self.step

    def sample(self, rng: np.random.Generator, size: tuple[int, ...]) -> Floats:
        """Draw independent variates of any shape."""
        if not self.tailed:
            return np.asarray(rng.standard_normal(size))
        if self.step:
            stop = -math.expm1(-self.limit * self.step)
            plus, minus = rng.negative_binomial(self.draws, stop, (2, *size))
            return np.asarray(self.step * (plus - minus))
        if self.draws == 1:
            return np.asarray(rng.laplace(0.0, math.sqrt(0.5), size))
        plus, minus = rng.standard_gamma(self.draws, (2, *size))
        return np.asarray((plus - minus) / math.sqrt(2.0 * self.draws))


@lru_cache(1024)
def _quantile(distribution: NoiseDistribution, level: float) -> float:
    normal = NormalDist().inv_cdf(0.5 + level / 2)
    if not distribution.tailed:
        return normal
    if distribution.step > _FINE:
        return distribution.step * _steps_of(distribution, (1.0,), (1,), level)
    if distribution.draws > _MANY:
        return normal + (normal**3 - 3.0 * normal) / (8.0 * distribution.draws)
    # normal, given the sum of exponential variates that is its variance
    places = (np.arange(_NODES) + 0.5) / _NODES
    stds = np.sqrt(gammaincinv(distribution.draws, places) / distribution.draws) + _TINY
    low, high = 0.0, 2.0 * normal + 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = erf(middle / (math.sqrt(2.0) * stds)).mean() >= level
        low, high = (low, middle) if enough else (middle, high)
    return high


@lru_cache(1024)
def _steps_of(
    distribution: NoiseDistribution,
    weights: tuple[float, ...],
    often: tuple[int, ...],
    level: float,
) -> float:
    """Return the least integer k with P(|S| <= k) >= level, S a sum by integer weights, in steps.

    By the characteristic function at all frequencies of a lattice that is long enough.
    """
    each, many = np.array(weights), np.array(often)
    std = math.sqrt(float(many @ each**2)) / distribution.step
    size = 2 ** math.ceil(math.log2(_REACH * (each.max() + std)))
    waves = 2.0 * math.pi * np.arange(size // 2 + 1) / (size * distribution.step)
    logs = sum(n * distribution.log_waves(w * waves) for w, n in zip(each, many, strict=True))
    chances = np.fft.irfft(np.exp(logs), size)[: size // 2]
    inside = chances[0] + 2.0 * np.concatenate([[0.0], np.cumsum(chances[1:])])
    return float(np.searchsorted(inside, level - 1e-12))
