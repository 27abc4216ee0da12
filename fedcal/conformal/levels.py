"""Distributions of noise, such as of sums of a release's noise in noisy prefix sums of counts.

Levels of noisy counts from which a threshold covers enough, by exact distributions.

Let T be a threshold that is above t_j whenever the noisy count N_j + Z < r, where N_j of n
exchangeable rows have a score of at most t_j, and Z has one distribution for all j, independent of
the rows. Then, for any distribution of the scores (ties, masses at the thresholds) and any
dependence between the noise of different j, P(F(T) >= u) >= P(Bin(n, u) + Z < r), and so

    E coverage >= (1 / (n + 1)) sum over k = 0..n of P(Z < r - k)

because Bin(n, u) at a uniform u is uniform on 0..n. Without noise these are the ranks of split
conformal prediction, ceil((n + 1) (1 - alpha)).

If n is private too, (1 - alpha) n is subtracted from the counts, and the level is valid for every n
above a lower bound.

The private quantile of Angelopoulos, Bates, Zrnic & Jordan, "Private Prediction Sets" (2024).

Algorithms 2, 3 and 5, and equations (3), (9) and (10), as printed, with two remarks.

**If q~ >= 1, the sets hold all labels.** The paper continues at the level min(q~, 1). There the
rows below a bin do not affect its cost, and all bins without rows above them have the same cost:
the draw is so wide that mean coverage of .55 to .81 is measured for .90.

**Privacy.** The costs are min(q, 1 - q) times the paper's w_j, max{(1-q)/q #<, #>} for q >= 1/2. A
row that is added moves one bin at a time into "#<" or "#>", never out of it: every cost rises by 0
to 1. So each weight exp(-epsilon cost / 2) falls by a factor of at most e^(epsilon/2), and so does
their sum: a probability changes by a factor of at most e^(epsilon/2). The draw as printed is
epsilon-DP where a row is replaced, and epsilon/2-DP where one is added or removed; q~ depends on n,
which has to be public. A user with at most r rows (more are sampled down to r) moves costs by at
most r: give epsilon / r.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw, ndtr, ndtri

from fedcal.calibrators.conformity import quantile_costs
from fedcal.core.checks import fraction
from fedcal.core.numerics import Floats, Integers, Purpose, stream
from fedcal.mechanisms import NoiseDistribution

_REACH = 12.0
"""Standard deviations to either side in the table of a distribution of Laplace sums."""

_SMOOTH = 0.8
"""Std of the normal noise that smooths the steps of a sum, in its largest step."""

_POINTS, _FREQUENCIES = 1025, 1024
_SAFETY = 1e-5
"""Amount by which a tabled probability is lowered: more than its numerical error."""


@dataclass(frozen=True)
class Normal:
    """Distribution of normal noise; of none with a standard deviation of 0."""

    std: float = 0.0

    def below(self, x: Floats) -> Floats:
        """Return P(Z < x)."""
        return np.asarray(ndtr(x / self.std) if self.std else x > 0, np.float64)

    @property
    def reach(self) -> tuple[float, float]:
        """Points at 8 standard deviations to either side."""
        return -8.0 * self.std, 8.0 * self.std


@dataclass(frozen=True, eq=False)
class Tabled:
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


SumNoise = Normal | Tabled
"""Distribution of a noise Z: `below` is P(Z < x), or a lower bound of it, of any shape."""


@dataclass(frozen=True, eq=False)
class CountNoise:
    """Noise of the numbers of a release: independent and identically distributed, with mean 0.

    Attributes
    ----------
    std
        of each number; 0 = none
    law
        of a number, at variance 1
    """

    std: float
    distribution: NoiseDistribution = field(default_factory=NoiseDistribution)

    def of_sums(self, weights: Floats) -> tuple[SumNoise, Floats]:
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
            return Normal(), np.zeros(len(weights))
        steps = self.distribution.step * self.std * np.abs(weights).max(axis=1)
        largest = float(np.hypot(size, _SMOOTH * steps).max())
        more = np.sqrt(np.maximum(largest**2 - size**2, 0.0))
        if not self.distribution.tailed:
            return Normal(largest), more
        parts = (self.std, self.distribution, largest)
        return _least_of(weights.tobytes(), len(weights), more.tobytes(), *parts), more

    def of_one(self) -> SumNoise:
        """Return the distribution of one number's noise."""
        return self.of_sums(np.eye(1))[0]

    def bound(self, weights: Floats, confidence: float) -> float:
        """Return a number that a sum of noise with (numbers,) weights exceeds more rarely."""
        noise, more = self.of_sums(weights[None])
        if more.any():  # at least half of what is above it is above it with the normal noise, too
            confidence = (1.0 + confidence) / 2.0
        if isinstance(noise, Normal):
            return float(ndtri(confidence) * noise.std)
        place = int(np.searchsorted(noise.values, confidence))
        return float(noise.points[min(place, len(noise.points) - 1)])


@lru_cache(16)
def _least_of(
    weights: bytes,
    sums: int,
    more: bytes,
    std: float,
    each_distribution: NoiseDistribution,
    largest: float,
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
        logs[k] = often @ each_distribution.log_waves(np.outer(each * std / largest, t))
    logs -= 0.5 * np.outer((np.frombuffer(more) / largest) ** 2, t**2)
    least = 0.5 + (np.exp(logs) @ waves.T).min(axis=0)
    least = np.maximum.accumulate(np.clip(least - _SAFETY, 0.0, 1.0))
    least[0], least[-1] = 0.0, 1.0 - _SAFETY
    return Tabled(points * largest, least)


_STEPS = 400
"""Ranks in one standard deviation that are summed one by one; more are summed in strides."""

_EXACT = 1e-6
"""Ranks by which a level may exceed the least one."""

_UNEVEN, _ROUGH = 100, 50.0
"""Least number of values of n to check, where the noise reaches less than `_ROUGH` ranks."""


def covered(rows: int, level: float, noise: SumNoise) -> float:
    """Return a lower bound of the mean coverage of `rows` exchangeable rows at a level r."""
    low, high = noise.reach
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
    return float((sure + widths @ noise.below(np.asarray(level - k, np.float64))) / (rows + 1))


@lru_cache(4096)
def marginal_level(rows: int, alpha: float, noise: SumNoise) -> float:
    """Return the least level r, up to `_EXACT` above, with mean coverage >= 1 - alpha.

    It holds for any scores.

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

    def enough(level: float) -> bool:
        return covered(rows, level, noise) >= 1.0 - alpha

    low, high = noise.reach
    near, step = (1.0 - alpha) * (rows + 1), max(1.0, (high - low) / 8.0)
    while not enough(near):
        near, step = near + step, 2.0 * step
    high, low = near, near - step
    while enough(low):
        high, low, step = low, low - step, 2.0 * step
    while high - low > _EXACT:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@lru_cache(256)
def centred_level(fewest: float, alpha: float, noise: SumNoise) -> float:
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
    first, (low, high) = math.ceil(fewest), noise.reach
    many = first + math.ceil((high - low) / min(alpha, 1.0 - alpha))
    uneven = 1  # the period in which a level rises and falls, as (1 - alpha) n nears integers
    if high - low < _ROUGH:
        uneven = max(_UNEVEN, math.ceil(1.0 / min(alpha, 1.0 - alpha)))
    each = [*range(first, first + uneven), *range(many, many + uneven)]
    return float(max(marginal_level(n, alpha, noise) - (1.0 - alpha) * n for n in each))


def after_last(thresholds: Floats, short: NDArray[np.bool_]) -> float:
    """Return the threshold after the last one that falls short; the first if none falls short.

    The scan starts at the top, because the first of a thousand noisy counts above a level is often
    at a threshold that is far too low.

    Parameters
    ----------
    thresholds
        (m,)
    short
        (m - 1,) whether each threshold but the last falls short
    """
    places = np.flatnonzero(short)
    return float(thresholds[places[-1] + 1 if len(places) else 0])


CLIP, CLIP_ROOT = 0.08, 2.75
"""Clipping bound of a client's centred counts: at least `CLIP` of its rows, and at least one row
more than `CLIP_ROOT` standard deviations of a client whose rows are like all others."""

_FEWEST = 32


Spacing = tuple[float, int, float]
"""Number of candidates over the root of q, the missed rows in units of b; the largest number of
them; and ln of the likelihood ratio of the last to the first over q."""

OF_ROWS: Spacing = (32.0, 512, 0.4)
OF_CLIENTS: Spacing = (16.0, 256, 0.25)

_MOST_TILT = 20.0


@dataclass(frozen=True)
class Draw:
    """Candidates and their prior.

    Attributes
    ----------
    candidates
        m
    tilt
        ln g
    """

    candidates: int
    tilt: float

    @classmethod
    def of(cls, missed: float, scale: float, spacing: Spacing) -> Draw:
        """Return the draw for an approximate number of missed rows, and b = `scale`."""
        q, (dense, most, tilt) = missed / scale, spacing
        m = min(max(round(dense * math.sqrt(q)), _FEWEST), most)
        return cls(m, min(_MOST_TILT, tilt * q) / m)

    @property
    def weight(self) -> float:
        """M: upper bound of the weight of all other candidates below one, over its own."""
        if self.tilt < 1e-12:
            return self.candidates - 1.0
        return -math.expm1(-self.tilt * (self.candidates - 1)) / math.expm1(self.tilt)

    def slack(self, scale: float) -> float:
        """Return by how much the level exceeds 1 - alpha.

        Parameters
        ----------
        scale
            b
        """
        plain = scale * math.log1p(self.weight)
        if scale < 0.05:  # below it e^{1/b} is large, and the first is less
            return plain
        left_out = scale * math.exp(1.0 / scale)
        left_out *= float(lambertw(math.exp(-1.0 / scale) * self.weight / math.e).real)
        return min(plain, left_out)


def sure_coverage(clip: float, rows: float, alpha: float) -> float:
    """Return the coverage that holds for any rows, if no client has more than `rows`.

    A client of r <= m rows with h hits at t adds g = h - (1 - alpha) r, clipped to +-C. With
    lambda = m / (C + alpha m), if that is more than 1, its misses r - h are at most
    lambda (alpha r - g): at g unclipped, because h <= r; at g = C a fortiori; at g = -C, because
    r - lambda alpha r <= (1 - lambda alpha) m = lambda C. Summed over clients, misses are at most
    lambda times what they are without clipping. It is reached by clients of m rows that all miss
    beside others that all hit, so many that the sums cancel. With lambda <= 1 nothing is ever cut
    off below.

    Parameters
    ----------
    clip
        C, in rows
    rows
        m
    alpha
        share of rows whose label may be missing

    Returns
    -------
    float
        1 - max(lambda, 1) alpha; 0 if a client may have any number of rows (infinite `rows`)
    """
    if math.isinf(rows):
        return 0.0
    return 1.0 - max(rows / (clip + alpha * rows), 1.0) * alpha


def client_clip(rows: float, alpha: float) -> float:
    """Return the clipping bound of a client's centred counts, from its public nominal rows."""
    return max(CLIP * rows, 1.0 + CLIP_ROOT * math.sqrt(alpha * (1.0 - alpha) * rows))


LEAST_GAMMA = 1e-12
"""Candidate of equation (10) that remains if both roots lie outside (0, 1)."""

CANDIDATES = np.unique(np.logspace(2, 6, 50).round().astype(int))
"""Numbers of bins that Algorithm 5 tries."""

MOST = 10.0
"""Largest number of bins to try, over n epsilon: Figure 4 has no more, the best number is
proportional to n epsilon, and every client sends one count for each bin."""


def inflated_level(n: int, m: int, epsilon: float, alpha: float, gamma: float) -> float:
    """Return q~ of equation (3): the level whose private quantile has mean coverage 1 - alpha.

    Parameters
    ----------
    n
        rows, public
    m
        bins
    epsilon
        > 0
    alpha
        fraction of labels that may be missed, in (0, 1)
    gamma
        fraction of `alpha` reserved for draws that fall short, in (0, 1)

    Returns
    -------
    float
        >= 1 if all labels are needed.

    """
    fraction("gamma", gamma)
    exact = (n + 1) * (1 - alpha) / (n * (1 - gamma * alpha))
    return exact + 2 / (epsilon * n) * math.log(m / (gamma * alpha))


def best_gamma(n: int, m: int, epsilon: float, alpha: float) -> float:
    """Return gamma* of equations (9) and (10): the gamma with the lowest q~."""
    linear = alpha * (1 - alpha) * epsilon * (n + 1) / 2 + 2 * alpha
    root = math.sqrt(linear**2 - 4 * alpha**2)  # linear >= 2 alpha
    large = (linear + root) / (2 * alpha**2)
    # their product is alpha**-2; the difference in the usual formula cancels
    roots = (1 / (alpha**2 * large), large)
    inside = [g for g in (*roots, LEAST_GAMMA) if 0 < g < 1]
    return min(inside, key=lambda gamma: inflated_level(n, m, epsilon, alpha, gamma))


@cache
def best_bins(n: int, epsilon: float, alpha: float, seed: int = 0) -> int:
    """Return m* of Algorithm 5: the number of bins with the smallest threshold of n uniform scores.

    The scores are simulated, so that no client row is used. Each number of bins is drawn once, as
    in the paper, so m* is partly random and varies with the seed from 100 to n epsilon; the mean
    threshold of uniform scores hardly does. Where scores are close to 1, more bins than this are
    better (the authors' program tries none below 10,000). If every number needs all labels, m* is
    the smallest.

    Parameters
    ----------
    n, epsilon, alpha
        as in `inflated_level`
    seed
        of the simulated scores and draws

    Returns
    -------
    int
        One of `CANDIDATES`, at most `MOST` n epsilon, or the first if that is less.
    """
    rng = stream(seed, Purpose.BOOTSTRAP, what=f"bins {n} {epsilon:.9e} {alpha:.9e}")
    scores = rng.random(n)
    tried = [m for m in CANDIDATES.tolist() if m <= max(MOST * n * epsilon, CANDIDATES[0])]

    def end(m: int) -> float:
        level = inflated_level(n, m, epsilon, alpha, best_gamma(n, m, epsilon, alpha))
        if level >= 1:
            return 1.0
        counts = np.bincount(binned(scores, m), minlength=m)[None]
        return float(thresholds(m)[private_quantile(counts, level, epsilon, rng)[0]])

    return int(min(tried, key=end))


def binned(scores: Floats, m: int) -> Integers:
    """Return bins of scores in [0, 1], 0 to m - 1: [0, 1/m], then (j/m, (j+1)/m], of any shape."""
    edges = thresholds(m)
    guess = np.minimum((scores * m).astype(np.int64), m - 1)  # at most one off
    guess -= (guess > 0) & (scores <= edges[np.maximum(guess - 1, 0)])
    return np.asarray(np.minimum(guess + (scores > edges[guess]), m - 1))


def thresholds(m: int) -> Floats:
    """Return the upper ends of m bins of equal width, (m,): the scores that a draw can return."""
    return np.arange(1, m + 1) / m


def private_quantile(
    counts: Floats | Integers, q: float, epsilon: float, rng: np.random.Generator
) -> Integers:
    """Draw a bin with probability ~ exp(-epsilon cost / 2) (Algorithm 2), (k, m) -> (k,)."""
    costs = quantile_costs(counts, q)
    costs -= costs.min(axis=-1, keepdims=True)
    weights = np.exp(-0.5 * epsilon * costs)
    upto = np.cumsum(weights, axis=-1)
    drawn = rng.random(len(upto)) * upto[:, -1]
    bins = [np.searchsorted(row, at, side="right") for row, at in zip(upto, drawn, strict=True)]
    return np.asarray(np.minimum(np.array(bins, np.int64), upto.shape[-1] - 1))
