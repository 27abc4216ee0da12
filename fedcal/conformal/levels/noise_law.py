"""Distributions of noise, such as of sums of a release's noise in noisy prefix sums of counts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from fedcal.core.types import Floats, override
from fedcal.mechanisms import NoiseLaw

_REACH = 12.0
"""Standard deviations to either side in the table of a distribution of Laplace sums."""

_SMOOTH = 0.8
"""Std of the normal noise that smooths the steps of a sum, in its largest step."""

_POINTS, _FREQUENCIES = 1025, 1024
_SAFETY = 1e-5
"""Amount by which a tabled probability is lowered: more than its numerical error."""


class Law(ABC):
    """Distribution of a noise Z, as a lower bound of P(Z < x)."""

    @abstractmethod
    def below(self, x: Floats) -> Floats:
        """Return P(Z < x), or a lower bound of it, of any shape."""

    @property
    @abstractmethod
    def reach(self) -> tuple[float, float]:
        """Points below which P(Z < x) is 0 and above which it is 1, up to 1e-15."""


@dataclass(frozen=True)
class Nothing(Law):
    """Distribution that is always 0: no noise."""

    @override
    def below(self, x: Floats) -> Floats:
        return np.asarray(x > 0, np.float64)

    @property
    @override
    def reach(self) -> tuple[float, float]:
        return 0.0, 0.0


@dataclass(frozen=True)
class Normal(Law):
    """Distribution of normal noise with a standard deviation > 0."""

    std: float

    @override
    def below(self, x: Floats) -> Floats:
        return np.asarray(ndtr(x / self.std))

    @property
    def reach(self) -> tuple[float, float]:
        """Points at 8 standard deviations to either side."""
        return -8.0 * self.std, 8.0 * self.std


@dataclass(frozen=True, eq=False)
class Tabled(Law):
    """Table of P(Z < x) at points, taken as constant up to the next point.

    Attributes
    ----------
    points
        (n,) increasing, equally far apart
    values
        (n,) increasing
    """

    points: Floats
    values: Floats

    def below(self, x: Floats) -> Floats:
        """Return the value of the last point at or below x; 0 before the first."""
        place = np.searchsorted(self.points, x, side="right") - 1
        return np.where(place < 0, 0.0, self.values[np.maximum(place, 0)])

    @property
    def reach(self) -> tuple[float, float]:
        """First and last point."""
        return float(self.points[0]), float(self.points[-1])


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise of the numbers of a release: independent and identically distributed, with mean 0.

    Attributes
    ----------
    std
        of each number; 0 = none
    law
        of a number, at variance 1
    """

    std: float
    law: NoiseLaw = field(default_factory=NoiseLaw)

    def of_sums(self, weights: Floats) -> tuple[Law, Floats]:
        """Return one distribution for several sums of the noise, and the noise to add for it.

        All sums are brought to the largest standard deviation by further normal noise. If the noise
        is normal, the sums then have the same distribution. For Laplace noise the least of all
        P(Z < x) is used, computed from characteristic functions. Where it is on integers, each sum
        gets some of the normal noise, so that its distribution has no steps.

        Parameters
        ----------
        weights
            (sums, numbers)

        Returns
        -------
        tuple[Law, Floats]
            The distribution; and (sums,) the standard deviations of the noise to be added.
        """
        size = np.linalg.norm(weights, axis=1) * self.std
        if not size.any():
            return Nothing(), np.zeros(len(weights))
        steps = self.law.step * self.std * np.abs(weights).max(axis=1)
        largest = float(np.hypot(size, _SMOOTH * steps).max())
        more = np.sqrt(np.maximum(largest**2 - size**2, 0.0))
        if not self.law.tailed:
            return Normal(largest), more
        parts = (self.std, self.law, largest)
        return _least_of(weights.tobytes(), len(weights), more.tobytes(), *parts), more

    def of_one(self) -> Law:
        """Return the distribution of one number's noise."""
        return self.of_sums(np.eye(1))[0]

    def bound(self, weights: Floats, confidence: float) -> float:
        """Return a number that a sum of noise with (numbers,) weights exceeds more rarely."""
        law, more = self.of_sums(weights[None])
        if more.any():  # at least half of what is above it is above it with the normal noise, too
            confidence = (1.0 + confidence) / 2.0
        if isinstance(law, Normal):
            return float(ndtri(confidence) * law.std)
        if isinstance(law, Tabled):
            place = int(np.searchsorted(law.values, confidence))
            return float(law.points[min(place, len(law.points) - 1)])
        return 0.0


@lru_cache(16)
def _least_of(
    weights: bytes, sums: int, more: bytes, std: float, each_law: NoiseLaw, largest: float
) -> Tabled:
    """Return the least P(Z < x) of several sums of Laplace noise, each with normal noise added.

    It is computed by Gil-Pelaez inversion: characteristic functions are real and even.

    Parameters
    ----------
    weights, more
        (sums, numbers), (sums,) as bytes
    std, each_law
        of the noise of a number
    largest
        standard deviation of all sums
    """
    points = np.linspace(-_REACH, _REACH, _POINTS)
    step = math.pi / (2.0 * _REACH)
    t = (np.arange(_FREQUENCIES) + 0.5) * step
    waves = np.sin(np.outer(points, t)) * (step / (math.pi * t))
    logs = np.empty((sums, _FREQUENCIES))
    for k, row in enumerate(np.abs(np.frombuffer(weights)).reshape(sums, -1)):
        each, often = np.unique(np.round(row, 9), return_counts=True)
        logs[k] = often @ each_law.log_waves(np.outer(each * std / largest, t))
    logs -= 0.5 * np.outer((np.frombuffer(more) / largest) ** 2, t**2)
    least = 0.5 + (np.exp(logs) @ waves.T).min(axis=0)
    least = np.maximum.accumulate(np.clip(least - _SAFETY, 0.0, 1.0))
    least[0], least[-1] = 0.0, 1.0 - _SAFETY
    return Tabled(points * largest, least)
