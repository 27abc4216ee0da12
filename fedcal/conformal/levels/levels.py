"""Levels of noisy counts from which a threshold covers enough, by exact distributions.

Let T be a threshold that is above t_j whenever the noisy count N_j + Z < r, where N_j of n
exchangeable rows have a score of at most t_j, and Z has one distribution for all j, independent of
the rows. Then, for any distribution of the scores (ties, masses at the thresholds) and any
dependence between the noise of different j, P(F(T) >= u) >= P(Bin(n, u) + Z < r), and so

    E coverage >= (1 / (n + 1)) sum over k = 0..n of P(Z < r - k)                  (marginal)
    P(coverage >= 1 - alpha) >= P(Bin(n, 1 - alpha) + Z < r)                       (PAC)

because Bin(n, u) at a uniform u is uniform on 0..n. Without noise these are the ranks of split
conformal prediction, ceil((n + 1) (1 - alpha)), and of Vovk (2012). A draw by the exponential
mechanism has the same form: Z bounds the number of ranks it may fall short (`Shortfall`).

If n is private too, (1 - alpha) n is subtracted from the counts, and the level is valid for every n
above a lower bound (marginal), or between a lower and an upper bound (PAC).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import bdtrik, gammaln, ndtr

from fedcal.core.types import Floats, override

_STEPS = 400
"""Ranks in one standard deviation that are summed one by one; more are summed in strides."""

_EXACT = 1e-6
"""Ranks by which a level may exceed the least one."""

_UNEVEN, _ROUGH = 100, 50.0
"""Least number of values of n to check, where the noise reaches less than `_ROUGH` ranks."""


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


@dataclass(frozen=True)
class Shortfall(Law):
    """Bound of how far a drawn candidate is below the level.

    P(Z > x) <= A / (1 + A), A = M e^(-x/b).

    Attributes
    ----------
    weight
        M, of all candidates that may fall short over that of the best one
    scale
        b, ranks by which a candidate's probability falls by a factor e
    """

    weight: float
    scale: float

    def below(self, x: Floats) -> Floats:
        """Return 1 / (1 + M e^(-x/b)) for x > 0, else 0."""
        odds = self.weight * np.exp(-np.maximum(x, 0.0) / self.scale)
        return np.asarray(np.where(x > 0, 1.0 / (1.0 + odds), 0.0))

    @property
    def reach(self) -> tuple[float, float]:
        """Interval from 0 to where the tail is 1e-15."""
        return 0.0, self.scale * (35.0 + max(math.log(self.weight), 0.0))


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


def covered(rows: int, level: float, law: Law) -> float:
    """Return a lower bound of the mean coverage of `rows` exchangeable rows at a level r."""
    low, high = law.reach
    # ranks up to `first` are sure: P(Z < x) need not be 1 at x = high, but is above
    first, last = math.ceil(level - high) - 1, math.ceil(level - low)
    sure = min(max(first + 1, 0), rows + 1)
    start, stop = max(first + 1, 0), min(last, rows)
    if stop < start:
        return float(sure / (rows + 1))
    stride = max(1, int((high - low) / (16 * _STEPS)))
    k = np.arange(start + stride - 1, stop + stride, stride, dtype=np.float64)  # the last of each
    widths = np.full(len(k), float(stride))
    widths[-1] -= k[-1] - stop
    k[-1] = stop
    return float((sure + widths @ law.below(np.asarray(level - k, np.float64))) / (rows + 1))


def sure_to_cover(rows: int, level: float, law: Law, share: float) -> float:
    """Return a lower bound of the probability that coverage is at least `share`."""
    k, likely = _ranks(rows, share)
    enough: Floats = law.below(level - k)
    return float(np.dot(likely, enough))


@lru_cache(256)
def _ranks(rows: int, share: float) -> tuple[Floats, Floats]:
    """Return possible numbers of rows below a quantile, and their probabilities."""
    spread = 10.0 * math.sqrt(rows * share * (1.0 - share)) + 10.0
    low, high = max(0, int(rows * share - spread)), min(rows, int(rows * share + spread))
    k = np.arange(low, high + 1, dtype=np.float64)
    return k, likely_ranks(k, rows, share)


def likely_ranks(k: Floats, rows: int, share: float) -> Floats:
    """Return the binomial probabilities P(Bin(rows, share) = k), in the shape of k."""
    log = gammaln(rows + 1) - gammaln(k + 1) - gammaln(rows - k + 1)
    return np.asarray(np.exp(log + k * math.log(share) + (rows - k) * math.log1p(-share)))


@lru_cache(4096)
def marginal_level(rows: int, alpha: float, law: Law) -> float:
    """Return the least level r with mean coverage >= 1 - alpha for any scores.

    Parameters
    ----------
    rows
        n, known
    alpha
        in (0, 1)

    Returns
    -------
    float
        Above n if all labels are needed.
    """
    near = (1.0 - alpha) * (rows + 1)
    return _least(lambda r: covered(rows, r, law) >= 1.0 - alpha, near, law)


@lru_cache(4096)
def pac_level(rows: int, alpha: float, law: Law, confidence: float) -> float:
    """Return the least level r with P(coverage >= 1 - alpha) >= `confidence`."""
    near = float(bdtrik(confidence, rows, 1.0 - alpha)) if rows else 0.0
    return _least(lambda r: sure_to_cover(rows, r, law, 1.0 - alpha) >= confidence, near, law)


@lru_cache(256)
def centred_level(fewest: float, alpha: float, law: Law) -> float:
    """Return the least level of counts minus (1 - alpha) n that is valid for each n >= `fewest`.

    The distance of a valid level from (1 - alpha) n falls with n, as less noise reaches beyond the
    last rank. With little noise it is not monotone, because ranks are integers; so several n are
    checked.

    Returns
    -------
    float
        Infinite where `fewest` < 1.
    """
    if fewest < 1:
        return math.inf
    first, (low, high) = math.ceil(fewest), law.reach
    many = first + math.ceil((high - low) / min(alpha, 1.0 - alpha))
    uneven = _uneven(alpha, law)
    each = [*range(first, first + uneven), *range(many, many + uneven)]
    return float(max(marginal_level(n, alpha, law) - (1.0 - alpha) * n for n in each))


@lru_cache(256)
def centred_pac_level(
    fewest: float, most: float, alpha: float, law: Law, confidence: float
) -> float:
    """Return the level of `centred_level` for PAC coverage, for each n from `fewest` to `most`.

    It grows with the root of n, except for small n, where noise reaches beyond the last rank.
    """
    if fewest < 1:
        return math.inf
    first, last = math.ceil(fewest), max(math.ceil(fewest), math.floor(most))
    uneven = _uneven(alpha, law)
    ends = {*range(first, min(first + uneven, last) + 1), *range(max(first, last - uneven), last)}
    each = sorted({*ends, last})
    return float(max(pac_level(n, alpha, law, confidence) - (1.0 - alpha) * n for n in each))


def _uneven(alpha: float, law: Law) -> int:
    """Return the period, in n, in which a level rises and falls as (1 - alpha) n nears integers."""
    low, high = law.reach
    if high - low >= _ROUGH:
        return 1
    return max(_UNEVEN, math.ceil(1.0 / min(alpha, 1.0 - alpha)))


def _least(enough: Callable[[float], bool], near: float, law: Law) -> float:
    """Return the least number, up to `_EXACT` above, that is enough; it is not far from `near`."""
    low, high = law.reach
    step = max(1.0, (high - low) / 8.0)
    while not enough(near):
        low, near, step = near, near + step, 2.0 * step
    high = near
    low = high - step
    while enough(low):
        high, low, step = low, low - step, 2.0 * step
    while high - low > _EXACT:
        middle = (low + high) / 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high
