"""Variation of metrics between clients: the sampling variance of new clients.

Rows of one client depend on one another, and independent rows' variance is then too small. To
first order a metric differs from its value by the sum over rows of its influence, its gradient by
the count that the row is in; clients are independent, so the variance is that of the clients'
sums of influence (a cluster-robust, or sandwich, variance; Liang & Zeger 1986).

Two releases estimate it. Sums over 20 disjoint parts of the clients (random groups; Wolter 2007,
chapter 2) are sums over rows, which suits noise that hides a row. Where noise hides a whole client,
or nobody, each client's squares are added up instead: all clients' squares are worth more than 20
folds', and the noise of a square enters once instead of squared.

What both yield is uncertain by itself, so a larger number is taken: a Student factor where there
is no noise, an upper confidence bound where there is much, and never less than independent rows'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from fedcal.calibrators.fits.noisy_counts import norm_sub
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.all_metrics import SMOOTH
from fedcal.evaluation.estimators.metrics import SmoothMetric
from fedcal.evaluation.histogram import Histogram
from fedcal.mechanisms import NoiseLaw

Estimand = Literal["rows", "these", "clients"]

ESTIMANDS: Mapping[Estimand, str] = {
    "rows": "new rows of the same clients, independent of one another",
    "these": "these rows",
    "clients": "new clients like these",
}
"""Population of the intervals, in words."""


MEASURED: Mapping[str, tuple[str, ...]] = {
    "positive": ("accuracy", "precision", "recall", "roc_auc", "brier", "gap"),
    "confidence": ("accuracy", "confidence_auc", "brier", "gap"),
}
"""Score -> metrics whose variance over clients is asked for: each one more costs all of them."""

_LEVEL = 0.95
_CONFIDENCE = 0.9
"""Of the upper bound of a variance that noise dominates. Simulated (normal clients, 20 folds, any
noise) intervals then hold the truth in 94.9 % or more."""


def influences(h: Histogram, score: str, threshold: float) -> Floats:
    """Return a row's influence in each count on each `MEASURED` metric, (metrics, 2, buckets).

    Negative counts are removed first (Norm-Sub). Sums over all rows are 0; a metric without a value
    has zeros.
    """
    solid = norm_sub(h.counts.ravel()).reshape(h.counts.shape)
    likely = Histogram.exact(h.edges, solid)
    rows = max(float(solid.sum()), 1e-9)
    values = []
    for metric in _metrics(score, threshold).values():
        known = np.isfinite(metric.value(likely))
        gradient = metric.gradient(likely) if known else np.zeros_like(solid)
        gradient = np.nan_to_num(gradient, posinf=0.0, neginf=0.0)
        values.append(gradient - float((gradient * solid).sum()) / rows)
    return np.stack(values)


def _metrics(score: str, threshold: float) -> dict[str, SmoothMetric]:
    at = threshold if score == "positive" else 0.0
    return {name: SMOOTH[name](at) for name in MEASURED[score]}


def variance_of_folds(sums: Floats, std: float, law: NoiseLaw, clients: float) -> Floats:
    """Return upper estimates of the variance of the sum over clients, from noisy sums of folds.

    Parameters
    ----------
    sums
        (folds, metrics), each over about as many clients
    std, law
        std and distribution of the noise of each sum
    clients
        number of clients in all folds together

    Returns
    -------
    Floats
        (metrics,); 0 and below where noise hides any variance
    """
    from scipy.special import chdtri

    folds = len(sums)
    squares = np.square(sums).sum(axis=0)
    noise = folds * std**2
    share = np.minimum(1.0, noise / np.maximum(squares, 1e-300))
    freedom = folds * (0.4 if law.tailed else 1.0)  # squares of Laplace noise vary 2.5 times
    least = float(chdtri(freedom, _CONFIDENCE)) / freedom
    filled = max(min(folds, clients), 2.0)
    plain = _student(filled - 1)
    factor = plain + (1.0 / least - plain) * share
    return np.asarray((factor * squares - noise) * filled / (filled - 1))


def variance_of_squares(squares: Floats, std: float, clients: float) -> Floats:
    """Return upper variance estimates of the sum over clients from noisy squares, (metrics,).

    Clients differ in size, and their squares vary more than normal ones: as those of half as many.
    """
    from scipy.special import ndtri

    count = max(clients, 2.0)
    plain = np.maximum(squares, 0.0) * count / (count - 1) * _student((count - 1) / 2)
    return np.asarray(plain + float(ndtri(_LEVEL)) * std)


def _student(freedom: float) -> float:
    """Return the squared ratio of Student's quantile to the normal quantile."""
    from scipy.special import ndtri, stdtrit

    at = 0.5 + _LEVEL / 2
    return float((stdtrit(freedom, at) / ndtri(at)) ** 2)


def spread_of(
    h: Histogram, score: str, threshold: float, measured: Mapping[str, float]
) -> tuple[dict[str, float], float]:
    """Return variances for new clients, at least that of independent rows, and the top ratio.

    Parameters
    ----------
    h, score, threshold
        of the release
    measured
        metric -> upper estimate of its variance over clients, at the threshold

    Returns
    -------
    tuple[dict[str, float], float]
        Metric -> variance; and how many times that of independent rows the largest one is (the
        design effect), at least 1
    """
    variances, effect = {}, 1.0
    for name, metric in _metrics(score, threshold).items():
        if name in measured and np.isfinite(metric.value(h)):
            alone = metric.rows_variance(h)
            variances[name] = max(measured[name], alone)
            effect = max(effect, variances[name] / alone) if alone > 0 else effect
    return variances, effect
