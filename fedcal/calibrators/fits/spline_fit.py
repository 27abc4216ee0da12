"""A smooth, never decreasing map of a score from its noisy histogram, around the Platt curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedcal.calibrators.fits.score_fit import (
    LEAST_ROWS,
    logistic,
    near_rows,
    pool_adjacent_violators,
)
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
    """Share of outcome 1 in each bucket as a monotone spline of the score's logit, (buckets,).

    The log-odds are a Platt curve plus a spline f. A normal prior has f be 0 on average, with a
    variance and a length of correlation (Matern's of smoothness 3/2, in 16 knots) that maximise
    the marginal likelihood of the noisy counts, in steps of Newton's method (Breslow & Clayton
    1993). Mean and covariance are those of `logistic`, of both sampling and noise. Variance 0 is
    one of the choices: where noise hides any departure, the map is the Platt curve. At last
    pool-adjacent-violators, weighted by the rows near each bucket, makes it never decrease. Values
    are within (0, 1).
    """
    x = np.log(h.middles) - np.log1p(-h.middles)
    features = np.stack([x, np.ones_like(x)])
    priors = [np.ones(2)]
    for length in _LENGTHS:
        features = np.concatenate([features, _spline_features(x, length)])
        zeros, ones = np.zeros(len(features) - _KNOTS - 2), np.ones(_KNOTS)
        priors += [np.concatenate([np.ones(2), zeros, v * ones]) for v in _VARIANCES]
    stds = [np.sqrt(np.append(v, np.zeros(len(features) - len(v)))) for v in priors]
    a, _, c = logistic(h, "platt")
    identity, w = np.zeros(len(features)), np.zeros(len(features))
    identity[0], w[0], w[1] = 1.0, a, c
    rows, noise, total = near_rows(h), h.root @ h.root.T, h.counts.sum(axis=0)
    for step in range(_STEPS):
        g = sigmoid(w @ features)
        d = rows * g * (1 - g)
        slopes = features * d
        both = np.outer(1 - g, 1 - g) + np.outer(g, g)  # P - T g = (1 - g) P - g N
        weighted = np.linalg.solve(noise * both + np.diag(d + LEAST_ROWS), slopes.T).T
        known = weighted @ slopes.T
        told = weighted @ (h.counts[1] - total * g) + known @ (w - identity)
        found = [_posterior(known, told, std) for std in stds]
        best = int(np.argmax([evidence for evidence, _ in found]))
        stds = stds if step < _CHOOSING else [stds[best]]
        change = identity + found[best][1] - w
        longest = np.abs(change @ features).max()
        w = w + change * min(1.0, _LONGEST / max(longest, _NEAR))
        if longest < _NEAR:
            break
    value = pool_adjacent_violators(sigmoid(w @ features), rows + LEAST_ROWS)
    return np.clip(value, _EDGE, 1 - _EDGE)


def _posterior(known: Floats, told: Floats, std: Floats) -> tuple[float, Floats]:
    """Log evidence and mean of weights of prior N(0, diag(std^2)), with `known` their information.

    `told` is the information times their estimate, (k,); a weight of std 0 is 0.
    """
    used = np.flatnonzero(std)
    s = std[used]
    root = np.linalg.cholesky(np.eye(len(used)) + known[np.ix_(used, used)] * np.outer(s, s))
    half = np.linalg.solve(root, s * told[used])
    mean = np.zeros_like(std)
    mean[used] = s * np.linalg.solve(root.T, half)
    return float(half @ half / 2 - np.log(np.diag(root)).sum()), mean


def _spline_features(x: Floats, length: float) -> Floats:
    """Functions of x whose sum with standard normal weights has Matern's covariance, (16, n)."""
    knots = np.linspace(x[0] - 0.5, x[-1] + 0.5, _KNOTS)

    def covariance(a: Floats) -> Floats:
        far = np.abs(knots[:, None] - a) * (np.sqrt(3) / length)
        return np.asarray((1 + far) * np.exp(-far))

    root = np.linalg.cholesky(covariance(knots) + 1e-9 * np.eye(_KNOTS))
    return np.asarray(np.linalg.solve(root, covariance(x)))
