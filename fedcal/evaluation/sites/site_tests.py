"""Tests of sites on counts by score and outcome: calibration, change, detectable gaps.

All arrays have the leading dimensions of federations and sites, (..., S) where sites are added up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import block_diag
from scipy.special import erfc, expit, ndtri

from fedcal.calibrators.histogram_binning import norm_sub
from fedcal.core.numerics import Floats, Integers
from fedcal.evaluation.sites.buckets import SPIKE, fractions, inverse, within_buckets
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.histogram import divide

_STEPS, _TINY = 60, 1e-300


@dataclass(frozen=True, eq=False)
class SumDistribution:
    """Distribution of d sums of counts under a hypothesis.

    `rows` (..., n) of cells have outcome 1 with the probability `share` (..., n), and a row's
    outcome less that is weighted by `weights` (..., d, n); `noise` (..., d, m) has the factors of
    independent variates with the distribution `each`; `power` (..., d, d) is the covariance of the
    normal part. Rows of one subject count as `most` together, and may depend on one another in
    any way: the spread of a mean of residuals is at most that of the residuals.
    """

    rows: Floats
    share: Floats
    weights: Floats
    noise: Floats
    power: Floats
    most: float = 1.0
    each: NoiseDistribution = field(default_factory=lambda: NoiseDistribution(tailed=True))

    def log_moments(self, t: Floats) -> tuple[Floats, Floats, Floats]:
        """Return K (...), its gradient (..., d) and its curvature (..., d, d) at t (..., d)."""
        a, c = self.most * dot(t, self.weights), dot(t, self.noise)
        up = self.share * np.exp(np.clip(a, -500, 500))
        all_rows, (own, slope, bend) = 1 - self.share + up, self.each.log_moments(c)
        p, by_power = up / all_rows, (self.power @ t[..., None])[..., 0]
        k = (self.rows * (np.log(all_rows) - self.share * a)).sum(axis=-1) / self.most
        k = k + own.sum(axis=-1) + (t * by_power).sum(axis=-1) / 2
        first = dot(self.rows * (p - self.share), self.weights.mT) + by_power
        first = first + dot(slope, self.noise.mT)
        second = squares(self.weights, self.most * self.rows * p * (1 - p)) + self.power
        return k, first, second + squares(self.noise, bend)

    @property
    def variance(self) -> Floats:
        """Covariance of the sums, (..., d, d)."""
        return self.log_moments(np.zeros(self.weights.shape[:-1]))[2]


def dot(t: Floats, matrix: Floats) -> Floats:
    """Multiply (..., d) by (..., d, n): (..., n)."""
    return np.asarray((t[..., None, :] @ matrix)[..., 0, :])


def squares(weights: Floats, each: Floats) -> Floats:
    """Sum over cells of weights (..., d, n) squared, times `each` (..., n), (..., d, d)."""
    return np.asarray((weights * each[..., None, :]) @ weights.mT)


def p_value(null: SumDistribution, sums: Floats) -> Floats:
    """Return the probability of sums (..., d) as rare, d = 1 or 2, (...)."""
    t = np.zeros(np.broadcast_shapes(sums.shape, null.weights.shape[:-1]))
    for _ in range(_STEPS):  # Newton's, damped
        _, first, second = null.log_moments(t)
        slack = sums - first
        step = (inverse(second) @ slack[..., None])[..., 0]
        decrement = np.sqrt(np.maximum((slack * step).sum(axis=-1), 0.0))
        if decrement.max(initial=0.0) < 1e-6:
            break
        move, jump = dot(step, null.noise), null.most * np.abs(dot(step, null.weights))
        room = null.each.limit - np.sign(move) * dot(t, null.noise)  # at 0 K is infinite
        reach = (0.95 * room / np.maximum(np.abs(move), _TINY)).min(axis=-1, initial=np.inf)
        share = np.where(decrement > 0.3, 1 / (1 + decrement), 1.0)
        share = np.minimum(np.minimum(share, reach), 2.0 / jump.max(axis=-1, initial=_TINY))
        t = t + share[..., None] * step
    (k, _, second), start, d = null.log_moments(t), inverse(null.variance), sums.shape[-1]
    linear = (t * sums).sum(axis=-1)
    value = np.maximum(linear - k, _TINY)
    square = np.maximum((sums * (start @ sums[..., None])[..., 0]).sum(axis=-1), _TINY)
    ratio = square ** (d / 2) / (2 * value) ** (d / 2 - 1) / np.maximum(linear, _TINY)
    log = np.log(ratio) + (np.linalg.slogdet(inverse(second))[1] - np.linalg.slogdet(start)[1]) / 2
    log = np.where(value > 1e-4, log, 0.0)  # 0 / 0
    rare = value * np.maximum(1 - log / (2 * value), 0.0) ** 2
    return np.asarray(np.exp(-rare) if d == 2 else erfc(np.sqrt(rare)))


MISREAD, CROWDED = 0.03, 0.5
"""Std of what a bucket's mean log odds is misread by, in its widths: the first, and the other one
times H^2, H = the sum of the squares of all buckets' shares of the rows. Of eight shipped data sets
the root mean square is .01 to .05 up to H = .35, and .08 to .18 beyond, where two have nearly all.
So at 300 to 20,000 calibrated rows of each of them, as they are and with half their log odds, 0 to
2.5 % of p-values are at most .01."""

UNRANKED = 0.1
"""Std of the AUC within a bucket about 1/2: the root mean square is .08 where both outcomes' scores
are normal, of spreads that differ up to three times, about the same mean."""

_ORDERED = 0.3
"""Distance from 1/2 of the AUC within a bucket, at most."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
_CALIBRATED, _PRIOR = np.array([0.0, 1.0]), np.array([3.0, 1.0])
"""Offset and slope that a fit starts from, and the std of its prior about these: all but flat."""
_STEPS, _LONGEST, _HALVINGS = 30, 0.5, 30
_REACH, _FARTHEST = (8.0, 4.0), 15.0
"""Largest distance of an interval's end from offset and slope; largest offset of a fault."""
_LITTLE = 1e-6
"""Information of a site without rows."""
_SIDES = np.array([-1.0, 1.0])
Moved: TypeAlias = tuple[Floats, Floats]
"""Later less earlier, and the std of that."""

_BY_BUCKET, _BY_POINT = ("counts", "rows", "misread"), ("points", "within")


@dataclass(frozen=True, eq=False)
class Sites:
    """Counts of sites from a release: `counts` (..., 2, buckets) by outcome, and their noise.

    `edges`, `root` and `distribution` are of `Histogram`; no log odds are below `least`. `rows`
    (..., buckets) of both outcomes are not negative; `within` (..., buckets, nodes) is the fraction
    of a bucket's rows that have the log odds `points`, and `misread` (..., buckets) the std of the
    resulting error. Rows of one subject count as `most` together.
    """

    counts: Floats
    root: Floats
    distribution: NoiseDistribution
    rows: Floats
    points: Floats
    within: Floats
    misread: Floats
    edges: Floats
    least: float = -np.inf
    most: float = 1.0

    @classmethod
    def of(
        cls,
        counts: Floats,
        edges: Floats,
        root: Floats,
        distribution: NoiseDistribution,
        least: float = -np.inf,
        most: float = 1.0,
    ) -> Sites:
        """Return sites from counts between edges from 0 to 1."""
        rows = norm_sub(counts.sum(axis=-2))
        middles, width, slope = within_buckets(edges, rows, least)
        half = width[:, None] / 2 * _NODES
        within = _WEIGHTS * np.exp(slope[..., None] * half)
        within /= within.sum(axis=-1, keepdims=True)
        crowded = (fractions(rows) ** 2).sum(axis=-1, keepdims=True)
        misread = width * (MISREAD + CROWDED * crowded**2)
        points = middles[:, None] + half
        known = counts, root, distribution, rows, points, within, misread
        return cls(*known, edges, least, most)

    def __getitem__(self, places: Any) -> Sites:
        """Return the sites at these places of the leading dimensions."""
        each = (*_BY_BUCKET, "within")
        return replace(self, **{name: getattr(self, name)[places] for name in each})

    def together(self, places: Any = slice(None)) -> Sites:
        """Return the sum of the sites (S,) at places as one site, (1,)."""
        kept = self.counts[places]
        times = max(len(kept), 1)
        root, distribution = math.sqrt(times) * self.root, self.distribution.times(times)
        counts = kept.sum(axis=0, keepdims=True)
        return Sites.of(counts, self.edges, root, distribution, self.least, self.most)

    @property
    def cells(self) -> Floats:
        """Counts that are not negative, (..., 2, buckets)."""
        return norm_sub(self.counts)

    @property
    def directions(self) -> Floats:
        """Weights of offset and slope: 1 and the mean log odds, (..., 2, buckets)."""
        x = (self.within * self.points).sum(axis=-1)
        return np.asarray(np.stack([np.ones_like(x), x], axis=-2))

    @property
    def total(self) -> Floats:
        """Rows of each site, at least 1, (...)."""
        return np.asarray(np.maximum(self.rows.sum(axis=-1), 1.0))

    def shares(self, at: Floats = _CALIBRATED) -> Floats:
        """Return the bucket's probabilities of outcome 1, by offset and slope (..., 2)."""
        p = expit(at[..., None, None, 0] + at[..., None, None, 1] * self.points)
        return np.asarray((self.within * p).sum(axis=-1))

    def score(self, share: Floats, weights: Floats) -> Floats:
        """Return weighted sums of outcomes less `share`, by weights (..., d, buckets), (..., d)."""
        slack = self.counts[..., 1, :] - self.counts.sum(axis=-2) * share
        return np.asarray((weights @ slack[..., None])[..., 0])

    def distribution_of(
        self, share: Floats, weights: Floats, truth: Floats | None = None
    ) -> SumDistribution:
        """Return the distribution of `score` if outcomes have probabilities `truth` or `share`.

        Where they differ from the shares, rows are taken as drawn from all buckets again.
        """
        true = share if truth is None else truth
        noise = [weights * part[..., None, :] @ self.root for part in (1 - share, share)]
        each = np.concatenate(noise, axis=-1)
        power = squares(weights, (self.misread * self.rows * true * (1 - true)) ** 2)
        power = power + squares(weights, self.most * self.rows * (true - share) ** 2)
        if not self.distribution.tailed:
            power, each = power + each @ each.mT, each[..., :0]
        return SumDistribution(self.rows, true, weights, each, power, self.most, self.distribution)

    def fit(self, free: tuple[int, ...] = (0, 1), start: Floats = _CALIBRATED) -> Floats:
        """Fit offset and slope (..., 2); coefficients that are not `free` (0, 1) keep their start.

        Newton's method; noise alone moves nothing from the start.
        """
        own, prior = list(free), np.diag(1 / _PRIOR[list(free)] ** 2)
        lead = np.broadcast_shapes(self.rows.shape[:-1], start.shape[:-1])
        at, directions = np.array(np.broadcast_to(start, (*lead, 2))), self.directions[..., own, :]
        for _ in range(_STEPS):
            share = self.shares(at)
            info = squares(directions, self.rows * share * (1 - share))
            noise = self.distribution_of(share, directions).variance - self.most * info
            lever = info @ inverse(info + noise)
            gain = (lever @ self.score(share, directions)[..., None])[..., 0]
            gain = gain - (at - start)[..., own] @ prior
            step = np.linalg.solve(lever @ info + prior, gain[..., None])[..., 0]
            at[..., own] += np.clip(step, -_LONGEST, _LONGEST)
            if np.abs(step).max(initial=0.0) < 1e-7:
                break
        return at

    def centred(self, share: Floats, of: int) -> Floats:
        """Return weights of offset (of = 0) or slope (1), blind to the other, (..., 1, buckets)."""
        mine, rest = self.directions[..., of, :], self.directions[..., 1 - of, :]
        info = self.rows * share * (1 - share) * rest
        lever = divide((info * mine).sum(-1, keepdims=True), (info * rest).sum(-1, keepdims=True))
        return np.asarray((mine - rest * lever)[..., None, :])


def calibration(sites: Sites) -> tuple[Floats, Floats, Floats]:
    """Return p-values of offset 0 and slope 1; gap 0, of any slope; slope 1, of any offset."""
    share, directions = sites.shares(), sites.directions
    joint = p_value(sites.distribution_of(share, directions), sites.score(share, directions))
    expected = np.stack([1 - share, share], axis=-2) * sites.rows[..., None, :]
    none = replace(sites, counts=expected).fit((0,), sites.fit())  # gap 0, and the likely slope
    one = directions[..., :1, :]
    gap = p_value(sites.distribution_of(share, one, sites.shares(none)), sites.score(share, one))
    moved = sites.shares(sites.fit((0,)))
    lever = sites.centred(moved, 1)
    return joint, gap, p_value(sites.distribution_of(moved, lever), sites.score(moved, lever))


def ranking(sites: Sites) -> tuple[Floats, Floats, Floats]:
    """Return each site's AUC, its std, and the p-value of one of .5 or more, (...) each.

    By the sum of outcomes less their rate, weighted by the mean rank of a bucket. The test takes
    ties as halves. Its variance at an AUC of .5 is that of outcomes which do not depend on the
    score, or DeLong's, if that is larger: the rarer outcome may be at both ends. In the estimate
    rows of a bucket are ordered as the site's slope says, and its variance is DeLong's. See
    `UNRANKED`, too.
    """
    total, unsure = sites.total, np.sqrt((sites.root**2).sum())  # std of noise in a number of rows
    rows = sites.rows + unsure / sites.rows.shape[-1]
    each = sites.cells + unsure * fractions(rows)[..., None, :]
    events = np.clip(sites.counts[..., 1, :].sum(axis=-1), 0, total)
    rate = (events + 1) / (total + 2)
    share = rate[..., None] + 0 * sites.rows
    ranks, own = _mean_ranks(rows)[..., None, :], placements(each)
    null, sums = sites.distribution_of(share, ranks), sites.score(share, ranks)[..., 0]
    parts, size = fractions(each), total * rate * (1 - rate)
    other = (parts * own**2).sum(axis=-1)  # of outcome 0, and 1
    apart = sites.most * size * (rate * other[..., 0] + (1 - rate) * other[..., 1])
    alike = sites.most * rate * (1 - rate) * (sites.rows * ranks[..., 0, :] ** 2).sum(axis=-1)
    both = parts.prod(axis=-2)
    loose = both * (np.ptp(sites.points, axis=-1) > SPIKE)
    ties = UNRANKED**2 * size**2 * (loose**2).sum(axis=-1)
    unsure_ranks = (np.maximum(apart - alike, 0.0) + ties)[..., None, None]
    null = replace(null, power=null.power + unsure_ranks)
    p = p_value(null, sums[..., None]) / 2
    lead = sums / size  # an AUC less 1/2
    spread = np.abs(sites.points[..., :, None] - sites.points[..., None, :])
    spread = np.einsum("...bi,...bij,...bj->...b", sites.within, spread, sites.within)
    order = np.clip(sites.fit()[..., 1, None] * spread / 4, -_ORDERED, _ORDERED)
    weights = own - lead[..., None, None]  # DeLong's
    noise = ((weights @ sites.root) ** 2).sum(axis=-1)
    of = total[..., None] * np.stack([1 - rate, rate], axis=-1)
    variance = (sites.most * (parts * weights**2).sum(axis=-1) / of + noise / of**2).sum(axis=-1)
    std = np.sqrt(variance + UNRANKED**2 * (loose**2).sum(axis=-1))
    auc = np.clip(0.5 + lead + (both * order).sum(axis=-1), 0.0, 1.0)
    return auc, std, np.where(sums < 0, p, 1 - p)


def _mean_ranks(rows: Floats) -> Floats:
    """Return the mean rank of each bucket's rows, from -1/2 to 1/2 (..., buckets)."""
    share = fractions(rows)
    return np.asarray(np.cumsum(share, axis=-1) - share / 2 - 0.5)


def placements(cells: Floats) -> Floats:
    """Return the mean rank of each bucket's rows among the other outcome's, (..., 2, buckets).

    It is above 0 where an outcome ranks as it should.
    """
    return np.asarray(_mean_ranks(cells)[..., ::-1, :] * _SIDES[:, None])


def gaps(sites: Sites, truth: Floats) -> tuple[Floats, Floats]:
    """Return each site's mean score minus outcome rate, and its std, (...); `truth` from a fit."""
    share, one = sites.shares(), sites.directions[..., :1, :]
    gap = -sites.score(share, one)[..., 0] / sites.total
    variance = sites.distribution_of(share - gap[..., None], one, truth).variance[..., 0, 0]
    return gap, np.where(sites.rows.sum(axis=-1) < 1, 1.0, np.sqrt(variance) / sites.total)


def observed_expected(sites: Sites, truth: Floats) -> Floats:
    """Return outcomes over the sum of scores at each site, and its 95 % interval, (3, ...).

    It is normal on the logarithm's scale; NaN where noise hides it. `truth` as in `gaps`.
    """
    share, one = sites.shares(), sites.directions[..., :1, :]
    expected = np.maximum((sites.counts.sum(axis=-2) * share).sum(axis=-1), 1.0)
    ratio = np.maximum(sites.counts[..., 1, :].sum(axis=-1), 0.0) / expected
    variance = sites.distribution_of(ratio[..., None] * share, one, truth).variance[..., 0, 0]
    off = divide(np.sqrt(variance) / expected, ratio, 1.0)
    times = np.where(off < 1, np.exp(1.96 * np.minimum(off, 1.0)), np.nan)
    return np.asarray(ratio * np.stack([times / times, 1 / times, times]))


def spans(sites: Sites, of: int) -> tuple[Floats, Floats, Floats]:
    """Return likely offset (of = 0) or slope (1) of each site, and its 95 % interval, (...).

    Inside are those whose score, the other one fitted, is within 1.96 std; inf = no end.
    """
    value = sites.fit()[..., of]
    side = _SIDES.reshape(2, *(1,) * value.ndim)

    def beyond(step: Floats) -> Any:
        at = np.where(np.arange(2) == of, (value + side * step)[..., None], _CALIBRATED)
        truth = sites.shares(sites.fit((1 - of,), at))
        lever = sites.centred(truth, of)
        std = np.sqrt(sites.distribution_of(truth, lever).variance[..., 0, 0])
        return side * sites.score(truth, lever)[..., 0] < -1.96 * std

    low, high = side * _first(beyond, _REACH[of], (2, *value.shape))
    return value, value + low, value + high


def least_gap(sites: Sites, level: float, seen: float) -> Floats:
    """Return the smallest gap that is named at a level with probability `seen`, (...); inf = none.

    It is the larger of both signs of an offset beside a slope of 1. If scores cannot have a gap of
    one sign, the other sign's is returned.
    """
    share, one = sites.shares(), sites.directions[..., :1, :]
    bound = np.sqrt(-2 * math.log(level) * sites.distribution_of(share, one).variance[..., 0, 0])
    side = _SIDES.reshape(2, *(1,) * bound.ndim)

    def moved(step: Floats) -> tuple[Floats, Floats]:
        """Return the expected sum of outcomes less shares, and its std."""
        truth = sites.shares(np.stack([side * step, np.ones_like(step)], axis=-1))
        sums = np.abs((sites.rows * (truth - share)).sum(axis=-1))
        variance = sites.distribution_of(share, one, truth).variance[..., 0, 0]
        return sums, np.sqrt(variance - sites.most * sums**2 / sites.total)  # rows about their mean

    def enough(step: Floats) -> Any:
        sums, std = moved(step)
        return sums - bound >= ndtri(seen) * std

    step = _first(enough, _FARTHEST, (2, *bound.shape))
    gap = moved(np.where(np.isfinite(step), step, 0.0))[0].max(axis=0) / sites.total
    return np.where(gap > 0, gap, np.inf)


def _first(holds: Callable[[Floats], Any], far: float, shape: tuple[int, ...]) -> Floats:
    """Return the smallest x up to `far` from which on a condition holds; inf = none."""
    low, high, first = (np.full(shape, x) for x in (0.0, far, np.inf))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        there = holds(middle)
        first = np.where(there, middle, first)
        low, high = np.where(there, low, middle), np.where(there, middle, high)
    return first


def changes(
    earlier: Sites, later: Sites, alike: Integers | None = None
) -> tuple[Floats, Moved, Floats]:
    """Return p-values of an unchanged offset and slope, changes of gaps, and p-values of slopes.

    Scores of two releases of the same sites (..., S) are contrasted at a fit to both, which what
    they share leaves at 0; last of (..., S + 1) come all sites of the places `alike` (None = each),
    if they change alike.
    """
    alike = np.arange(earlier.rows.shape[-2]) if alike is None else alike
    pair, half = _side_by_side(earlier, later), earlier.rows.shape[-1]
    truth, directions = pair.shares(pair.fit()), pair.directions
    parts = np.s_[..., :half], np.s_[..., half:]
    weight = pair.rows * truth * (1 - truth)
    first, second = (squares(directions[part], weight[part]) for part in parts)
    lever = inverse(first + second)
    each = (-second @ lever @ directions[parts[0]], first @ lever @ directions[parts[1]])
    weights = np.concatenate(each, axis=-1)
    null, contrast = pair.distribution_of(truth, weights), pair.score(truth, weights)
    every = p_value(_over_sites(null, alike), contrast[..., alike, :].sum(axis=-2))
    p_values = np.concatenate([p_value(null, contrast), every[..., None]], axis=-1)

    def plus(part: Floats, axis: int) -> Floats:
        """Return the sites followed by the sum of those that may change alike, along `axis`."""
        total = part.take(alike, axis).sum(axis=axis, keepdims=True)
        return np.concatenate([part, total], axis=axis)

    apart = inverse(plus(first @ lever @ second, -3), _LITTLE)
    slope = (apart @ plus(contrast, -2)[..., None])[..., 1, 0]  # to first order
    spread = apart @ (plus(null.variance, -3) + _LITTLE * np.eye(2)) @ apart.mT
    (before, a), (after, b) = gaps(earlier, truth[parts[0]]), gaps(later, truth[parts[1]])
    size = earlier.total * later.total / (earlier.total + later.total)
    all_rows = plus(size, -1)
    gap = divide(plus(size * (after - before), -1), all_rows, np.nan)
    std = divide(np.sqrt(plus(size**2 * (a**2 + b**2), -1)), all_rows, np.nan)
    return p_values, (gap, std), erfc(np.abs(slope) / np.sqrt(2 * spread[..., 1, 1]))


def _side_by_side(a: Sites, b: Sites) -> Sites:
    """Return the buckets of both releases as if of one."""
    each: dict[str, Any] = {
        k: np.concatenate([getattr(a, k), getattr(b, k)], axis=-1) for k in _BY_BUCKET
    }
    points, within = (np.concatenate([getattr(a, k), getattr(b, k)], -2) for k in _BY_POINT)
    distribution = NoiseDistribution(
        a.distribution.tailed or b.distribution.tailed,
        min(a.distribution.draws, b.distribution.draws),
        max(a.distribution.step, b.distribution.step),
    )
    root = block_diag(a.root, b.root)
    return Sites(
        root=root,
        distribution=distribution,
        points=points,
        within=within,
        edges=a.edges,
        most=max(a.most, b.most),
        **each,
    )


def _over_sites(null: SumDistribution, places: Integers) -> SumDistribution:
    """Return the distribution of the sum over the sites at these places of (..., S)."""
    flat = [null.rows[..., places, :], null.share[..., places, :]]
    flat += [np.moveaxis(x[..., places, :, :], -3, -2) for x in (null.weights, null.noise)]
    rows, share, weights, noise = (np.reshape(part, (*part.shape[:-2], -1)) for part in flat)
    power = null.power[..., places, :, :].sum(axis=-3)
    return SumDistribution(rows, share, weights, noise, power, null.most, null.each)
