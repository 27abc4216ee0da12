"""Distributions of noise, such as of sums of a release's noise in noisy prefix sums of counts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from fedcal.core.types import Floats, override

_REACH = 12.0
"""Standard deviations to either side in the table of a distribution of Laplace sums."""

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
    tailed
        whether a complete draw is Laplace; else it is normal
    draws
        complete draws in a number: one, or one for each client (a fraction more, where clients add
        shares of the noise)
    """

    std: float
    tailed: bool = False
    draws: float = 1.0

    def of_sums(self, weights: Floats) -> tuple[Law, Floats]:
        """Return one distribution for several sums of the noise, and the noise to add for it.

        All sums are brought to the largest standard deviation by further normal noise. If the noise
        is normal, the sums then have the same distribution. For Laplace noise the least of all
        P(Z < x) is used, computed from characteristic functions.

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
        largest = float(size.max(initial=0.0))
        if largest == 0:
            return Nothing(), np.zeros(len(weights))
        more = np.sqrt(np.maximum(largest**2 - size**2, 0.0))
        if not self.tailed:
            return Normal(largest), more
        parts = (self.std / math.sqrt(2.0 * self.draws), self.draws, largest)
        return _least_of(weights.tobytes(), len(weights), more.tobytes(), *parts), more

    def of_one(self) -> Law:
        """Return the distribution of one number's noise."""
        return self.of_sums(np.eye(1))[0]

    def bound(self, weights: Floats, confidence: float) -> float:
        """Return the quantile of a sum of noise with (numbers,) weights, at this probability."""
        law, _ = self.of_sums(weights[None])
        if isinstance(law, Normal):
            return float(ndtri(confidence) * law.std)
        if isinstance(law, Tabled):
            place = int(np.searchsorted(law.values, confidence))
            return float(law.points[min(place, len(law.points) - 1)])
        return 0.0


@lru_cache(16)
def _least_of(
    weights: bytes, sums: int, more: bytes, scale: float, draws: float, largest: float
) -> Tabled:
    """Return the least P(Z < x) of several sums of Laplace noise, each with normal noise added.

    It is computed by Gil-Pelaez inversion: characteristic functions are real and even.

    Parameters
    ----------
    weights, more
        (sums, numbers), (sums,) as bytes
    scale
        of a complete Laplace draw
    draws
        in a number
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
        squares = np.outer((each * scale / largest) ** 2, t**2)
        logs[k] = -draws * (often @ np.log1p(squares))
    logs -= 0.5 * np.outer((np.frombuffer(more) / largest) ** 2, t**2)
    least = 0.5 + (np.exp(logs) @ waves.T).min(axis=0)
    least = np.maximum.accumulate(np.clip(least - _SAFETY, 0.0, 1.0))
    least[0], least[-1] = 0.0, 1.0 - _SAFETY
    return Tabled(points * largest, least)
