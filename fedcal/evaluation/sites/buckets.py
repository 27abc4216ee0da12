"""Buckets of scores in log odds, and plausible rows in them under the noise of a release."""

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

_FIRM = 6.0
"""Variances of the noise by which differences of counts must exceed it to be kept: what is kept of
them keeps as much of their noise."""

_NARROWEST = 1e-3
_STEEPEST = 1.5
"""Slope of the log density of log odds, at most, that rows are taken to have inside a bucket."""


def edges_of(score: str) -> Floats:
    """Return the edges of the ten buckets of a score, from 0 to 1, (11,)."""
    return np.round(np.concatenate([[0.0], expit(CUTS[score]), [1.0]]), 12)


def bucket_widths(edges: Floats) -> Floats:
    """Return bucket widths in log odds, (buckets,); at both ends twice the neighbour's."""
    inner = np.diff(np.log(edges[1:-1] / (1 - edges[1:-1])))
    wide = inner[inner > SPIKE] if (inner > SPIKE).any() else inner
    return np.concatenate([2 * wide[:1], inner, 2 * wide[-1:]])


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
