"""A smooth, never decreasing map of a score from its noisy histogram, around the Platt curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedcal.calibrators.fits import score_fit
from fedcal.calibrators.fits.score_fit import LEAST_ROWS
from fedcal.core.numerics import sigmoid
from fedcal.core.types import Floats

if TYPE_CHECKING:
    from fedcal.evaluation.histogram import Histogram

_KNOTS = 16
_LENGTHS = (0.7, 2.5)  # over which the map leaves the curve, in log-odds of the score
_VARIANCES = np.geomspace(0.01, 3.0, 6)  # of how far, in squared log-odds
_STEPS = 15  # of Newton's method; the last ones change log-odds by hundredths at most
_CHOOSING = 3  # steps after which length and variance stay as they are: no going to and fro
_LONGEST = 2.0  # step of a bucket's log-odds
_NEAR = 1e-3  # a step of it that ends
_EDGE = 1e-6  # a value's least distance from 0 and from 1


def spline(h: Histogram) -> Floats:
    """Return each bucket's outcome rate as a monotone spline of the score's logit, (buckets,).

    The log-odds are the Platt curve's plus a spline f. A normal prior has f be 0 on average, with a
    variance and a length of correlation (Matern's of smoothness 3/2, in 16 knots) that maximise
    the marginal likelihood of the noisy counts, in steps of Newton's method (Breslow & Clayton
    1993). Mean and covariance are those of `logistic`, of both sampling and noise. Where noise
    hides any departure, f is 0: see `_choice`. Finally pool-adjacent-violators, weighted by the
    rows near each bucket, makes values never decrease; they are within (0, 1).
    """
    x = np.log(h.middles) - np.log1p(-h.middles)
    a, _, c = score_fit.logistic(h, "platt")
    curve, rows, total = a * x + c, score_fit.near_rows(h), h.counts.sum(axis=0)
    features = np.concatenate([_spline_features(x, length) for length in _LENGTHS])
    each = np.repeat(np.eye(len(_LENGTHS)), _KNOTS, axis=1)
    stds = np.sqrt([np.zeros(len(features)), *(v * one for one in each for v in _VARIANCES)])
    noise, w, z, size, last = h.root @ h.root.T, np.zeros(len(features)), curve, 1.0, np.inf
    for step in range(_STEPS):
        g = sigmoid(z)
        d = rows * g * (1 - g)
        slopes = features * d
        both = np.outer(1 - g, 1 - g) + np.outer(g, g)  # P - T g = (1 - g) P - g N
        weighted = np.linalg.solve(noise * both + np.diag(d + LEAST_ROWS), slopes.T).T
        known = weighted @ slopes.T
        weighted_estimate = weighted @ (h.counts[1] - total * g) + known @ w
        posteriors = [_posterior(known, weighted_estimate, std) for std in stds]
        best = _choice(np.array([evidence for evidence, _ in posteriors]))
        stds = stds if step < _CHOOSING else stds[[best]]
        change = posteriors[best][1] - w
        longest = np.abs(change @ features).max()
        size = size if longest < last else size / 2  # to and fro: noisy totals overstate a step
        w = w + change * min(size, _LONGEST / max(longest, _NEAR))
        z, last = curve + w @ features, longest
        if longest < _NEAR:
            break
    value = score_fit.pool_adjacent_violators(sigmoid(z), rows + LEAST_ROWS)
    return np.clip(value, _EDGE, 1 - _EDGE)


def _choice(evidence: Floats) -> int:
    """Return 0, or the best other index if their mean evidence is larger; (k,) logs."""
    most = evidence.max()
    if len(evidence) == 1 or np.exp(evidence[0] - most) >= np.exp(evidence[1:] - most).mean():
        return 0
    return int(evidence[1:].argmax()) + 1


def _posterior(known: Floats, weighted_estimate: Floats, std: Floats) -> tuple[float, Floats]:
    """Return log evidence and mean of weights ~ N(0, diag(std^2)), given information `known`.

    `weighted_estimate` is the information times their estimate, (k,); a weight of std 0 is 0.
    """
    used = np.flatnonzero(std)
    s = std[used]
    root = np.linalg.cholesky(np.eye(len(used)) + known[np.ix_(used, used)] * np.outer(s, s))
    half = np.linalg.solve(root, s * weighted_estimate[used])
    mean = np.zeros_like(std)
    mean[used] = s * np.linalg.solve(root.T, half)
    return float(half @ half / 2 - np.log(np.diag(root)).sum()), mean


def _spline_features(x: Floats, length: float) -> Floats:
    """Return functions of x whose random sums have Matern's covariance, (16, n)."""
    knots = np.linspace(x[0] - 0.5, x[-1] + 0.5, _KNOTS)

    def covariance(a: Floats) -> Floats:
        far = np.abs(knots[:, None] - a) * (np.sqrt(3) / length)
        return np.asarray((1 + far) * np.exp(-far))

    root = np.linalg.cholesky(covariance(knots) + 1e-9 * np.eye(_KNOTS))
    return np.asarray(np.linalg.solve(root, covariance(x)))
