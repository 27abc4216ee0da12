"""Effects of sites in counts by site: scores of recalibration, linear in the counts.

A site's own maximum likelihood is infinite where it has few rows (56 % of sites of 5), and a ratio
of noisy counts has no mean. The score of the likelihood at a fit to all sites has neither fault:
for site s with the parameters a + theta, a the common fit,

    U_s ~ N(I_s theta, I_s + N_s),

I_s the expected information of its rows and N_s the known covariance of the release's noise.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedcal.calibrators.histogram_binning import norm_sub
from fedcal.core.numerics import Floats
from fedcal.metrics.histogram import divide

CUTS: dict[str, Floats] = {
    "positive": np.array([-5.0, -3.2, -1.8, -0.8, 0.0, 0.8, 1.8, 3.2, 5.0]),
    "confidence": np.array([-0.5, 0.3, 1.1, 2.0, 3.2, 4.8, 6.6, 9.0, 12.0]),
}
"""Score -> log odds that part its ten buckets: the fewest under which a fit to counts loses less
than 1e-4 log loss against one to rows (heart-disease, adult-income, imdb-binary, game-forecasts).
Confidences of overconfident networks have log odds of 10 and more."""

FINE = CUTS | {"positive": np.array([-5.0, -4.0, -3.2, -2.6, -2.0, -1.4, -0.8, 0.0, 0.8, 1.8, 3.4])}
"""Cuts for tests of each site: finer at low risks, where an outcome is rare and scores crowd. At
5,000 patients with a prevalence of 10 % gaps of 2 points are seen, with `CUTS` of 9 or more."""

SPIKE = 0.01
"""Widest bucket, in log odds, that holds one value of the score."""

_STEPS, _NEARER = 30, 4
_LONGEST = 0.5
"""Step of a fit, in a parameter's own unit."""

_FIRM = 6.0
"""Variances of the noise by which differences of counts must exceed it to be kept: what is kept of
them keeps as much of their noise."""

_QUIET = 30.0
"""Weight of noise in a site's own fit, so that only sites whose rows drown it have one: where
rates differ much, one common fit reads slopes of 1 as .7 (adult-income, dirichlet:0.5)."""

_NARROWEST = 1e-3
_STEEPEST = 1.5
"""Slope of the log density of log odds, at most, that rows are taken to have inside a bucket."""


def edges_of(score: str) -> Floats:
    """Return the edges of the ten buckets of a score, from 0 to 1, (11,)."""
    return np.round(np.concatenate([[0.0], expit(CUTS[score]), [1.0]]), 12)


def changed(x: Floats, at: Floats, classes: int) -> tuple[Floats, Floats]:
    """Return log odds x (..., n) changed by the parameters `at` (..., d), and their derivatives.

    Two classes: log odds x become o + exp(l) x, with the parameters (o, l). More: every logit is
    divided by the temperature exp(-l), with the parameter (l,). The log odds x of the largest
    probability then become about exp(l) (x + log k) - log k, k = (c - 1)^0.4 (exact where k equal
    rivals share the rest; the power was chosen on the fit halves of four shipped networks).
    Derivatives by the parameters are (..., d, n).
    """
    rivals = 0.0 if classes == 2 else 0.4 * float(np.log(classes - 1))
    by_slope = np.exp(at[..., -1:]) * (x + rivals)
    if classes == 2:
        return at[..., :1] + by_slope, np.stack([np.ones_like(by_slope), by_slope], axis=-2)
    return by_slope - rivals, by_slope[..., None, :]


@dataclass(frozen=True, eq=False)
class Effects:
    """Scores of sites at a common fit. Leading dimensions are of federations.

    Attributes
    ----------
    at
        (..., d) the common fit
    scores
        (..., S, d) U_s
    information
        (..., S, d, d) I_s
    noise
        (..., S, d, d) N_s
    rows
        (..., S) rows of each site, estimated under noise
    """

    at: Floats
    scores: Floats
    information: Floats
    noise: Floats
    rows: Floats


def bucket_widths(edges: Floats) -> Floats:
    """Return bucket widths in log odds, (buckets,); at both ends twice the neighbour's."""
    inner = np.diff(np.log(edges[1:-1] / (1 - edges[1:-1])))
    wide = inner[inner > SPIKE] if (inner > SPIKE).any() else inner
    return np.concatenate([2 * wide[:1], inner, 2 * wide[-1:]])


def bucket_log_odds(edges: Floats, rows: Floats) -> Floats:
    """Return mean log odds of each bucket's rows, (..., buckets), from counts of all sites."""
    middles, width, slope = within_buckets(edges, rows)
    bent = np.abs(slope) * width > 1e-3
    steep = np.where(bent, slope, 1.0)
    off = width / 2 / np.tanh(steep * width / 2) - 1 / steep
    return np.asarray(middles + np.where(bent, off, 0.0))


def within_buckets(
    edges: Floats, rows: Floats, least: float = -np.inf
) -> tuple[Floats, Floats, Floats]:
    """Return middle, width and slope of the log density of each bucket, in log odds.

    No log odds are below `least`.
    Inside a bucket the log density is taken to be linear, with the slope that the neighbours show:
    at the middles a slope of .58 would be read as .77 where scores crowd at the ends (imdb-binary).
    """
    width = bucket_widths(edges)
    first = np.log(edges[1] / (1 - edges[1]))
    upper = np.maximum(first - width[0] + np.cumsum(width), least + _NARROWEST)
    width = np.diff(upper, prepend=max(first - width[0], least))
    width, middles = np.maximum(width, _NARROWEST), upper - width / 2
    total = rows.sum(axis=-1, keepdims=True)
    dense = np.log((rows + 0.5 + 0.05 * np.sqrt(total)) / width)
    slope, wide = np.zeros_like(dense), np.flatnonzero(width > SPIKE)
    if len(wide) > 1:
        slope[..., wide] = np.gradient(dense[..., wide], middles[wide], axis=-1)
    return middles, width, np.clip(slope, -_STEEPEST, _STEEPEST)


def effects(counts: Floats, edges: Floats, root: Floats, classes: int, spread: Floats) -> Effects:
    """Return the scores of all sites at the fit to their sum.

    Parameters
    ----------
    counts
        (..., S, 2, buckets) rows by site, outcome and bucket; noisy ones may be negative
    edges
        (buckets + 1,) from 0 to 1
    root
        (buckets, variates): each row of counts has the noise `root @ z`; see `Histogram`
    classes
        number of classes of the model
    spread
        (d,) std of the prior of the common fit, about 0; a site's own fit about it has 3/4 of it
    """
    power = root @ root.T
    every = counts.sum(axis=-2)  # rows by bucket, (..., S, buckets)
    x = bucket_log_odds(edges, norm_sub(every.sum(axis=-2)))
    if classes > 2:  # no largest probability is below 1 / c
        x = np.maximum(x, np.log(1.02 / (classes - 1.02)))
    sites = counts.shape[-3]
    overall = counts.sum(axis=-3)
    at = np.zeros((*counts.shape[:-3], len(spread)))
    prior = np.diag(1 / np.asarray(spread) ** 2)
    sure = norm_sub(overall.sum(axis=-2))
    for _ in range(_STEPS):  # of the noise's own weight: noise alone moves nothing
        score, info, noise = _scores(classes, at, x, overall, sure, sites * power)
        lever = info @ inverse(info + noise)
        gain = (lever @ score[..., None])[..., 0] - at @ prior
        step = np.linalg.solve(lever @ info + prior, gain[..., None])[..., 0]
        at = at + np.clip(step, -_LONGEST, _LONGEST)
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    rows = plausible(every, 2 * np.diag(power))
    near, x = at[..., None, :] + np.zeros((*counts.shape[:-2], len(spread))), x[..., None, :]
    apart = prior / 0.75**2
    for k in range(_NEARER + 1):  # scores bend: each site's about its own fit, shrunk to the common
        score, info, noise = _scores(classes, near, x, counts, rows, power)
        score = score + (info @ (near - at[..., None, :])[..., None])[..., 0]
        if k < _NEARER:
            lever = info @ inverse(info + _QUIET * noise)
            own = np.linalg.solve(lever @ info + apart, lever @ score[..., None])[..., 0]
            near = near + np.clip(at[..., None, :] + own - near, -_LONGEST, _LONGEST)
    return Effects(at, score, info, noise, rows.sum(axis=-1))


def _scores(
    classes: int, at: Floats, x: Floats, counts: Floats, rows: Floats, power: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return score (..., d), information and noise covariance (..., d, d)."""
    log_odds, slopes = changed(x, at, classes)
    p = expit(log_odds)
    slack = counts[..., 1, :] - counts.sum(axis=-2) * p
    score = (slopes * slack[..., None, :]).sum(axis=-1)
    weight = rows * p * (1 - p)
    info = (slopes * weight[..., None, :]) @ slopes.mT
    both = (slopes * (1 - p)[..., None, :], slopes * p[..., None, :])
    noise = sum(w @ power @ w.mT for w in both)
    return score, info, np.broadcast_to(noise, info.shape)


def inverse(matrices: Floats, least: float = 1e-9) -> Floats:
    """Return the inverse of (..., d, d), singular if all scores are alike and without noise."""
    least = least + 1e-12 * np.trace(matrices, axis1=-2, axis2=-1)[..., None, None]
    return np.asarray(np.linalg.inv(matrices + least * np.eye(matrices.shape[-1])))


def fractions(rows: Floats, empty: float = 0.0) -> Floats:
    """Return the fraction of rows in each bucket, (..., buckets); `empty` without rows."""
    return divide(rows, rows.sum(axis=-1, keepdims=True) + 0 * rows, empty)


def plausible(every: Floats, variance: Floats) -> Floats:
    """Return rows of each site by bucket, (..., S, buckets), not negative.

    Numbers of rows are shrunk to their mean and shapes to the federation's, as far as noise
    explains what they differ by: weights that follow a site's own noise would go with its score
    (100 sites of 30 rows at epsilon = 1: a log slope of -.35 was read as -.58,
    and -.52 as -.90 where sites differ).
    """
    shape = norm_sub(every.sum(axis=-2, keepdims=True))
    share = fractions(shape, 1 / every.shape[-1])
    total = every.sum(axis=-1, keepdims=True)
    mean = total.mean(axis=-2, keepdims=True)
    total = np.maximum(mean + _shrunk(total - mean, variance.sum()), 0.0)
    noise = variance.mean()  # and sampling variance, as far as noise hides it
    chance = np.maximum(mean, 0.0) / every.shape[-1]
    noise = noise + divide(noise * chance, noise + chance)
    return norm_sub(total * share + _shrunk(every - total * share, noise))


def _shrunk(off: Floats, variance: Floats | float) -> Floats:
    """Return differences (..., S, m), shrunk where noise explains them many times over."""
    size = (off**2).mean(axis=(-1, -2), keepdims=True)
    most = _FIRM * variance
    return np.asarray(off * np.maximum(1 - divide(most + 0 * size, size, np.inf), 0.0))
