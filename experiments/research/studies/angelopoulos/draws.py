"""Thresholds of the paper's algorithms for many sets of rows at once."""

import numpy as np

from fedcal.conformal.angelopoulos import (
    best_gamma,
    binned,
    inflated_level,
    private_quantile,
    thresholds,
)
from fedcal.core.numerics import Floats, Integers


def private_thresholds(
    scores: Floats,
    m: int,
    epsilon: float,
    alpha: float,
    rng: np.random.Generator,
    gamma: float | None = None,
) -> Floats:
    """Apply Algorithm 3 to many sets of rows.

    Parameters
    ----------
    scores
        (k, n) in [0, 1], n rows in each set
    m, epsilon, alpha
        as in `inflated_level`
    rng
        of the draws
    gamma
        None = `best_gamma`

    Returns
    -------
    Floats
        (k,) in (0, 1]; 1 = all labels.
    """
    n = scores.shape[1]
    gamma = best_gamma(n, m, epsilon, alpha) if gamma is None else gamma
    level = inflated_level(n, m, epsilon, alpha, gamma)
    if level >= 1:
        return np.ones(len(scores))
    return np.asarray(thresholds(m)[drawn_bins(scores, m, level, epsilon, rng)])


def drawn_bins(
    scores: Floats, m: int, level: float, epsilon: float, rng: np.random.Generator
) -> Integers:
    """Apply Algorithm 2 to many sets of rows, in blocks that fit into memory, (k, n) -> (k,)."""
    step = max(1, 2_000_000 // m)
    blocks = [np.zeros(0, np.int64)]
    for start in range(0, len(scores), step):
        some = binned(scores[start : start + step], m)
        place = some + m * np.arange(len(some))[:, None]
        counts = np.bincount(place.ravel(), minlength=m * len(some)).reshape(-1, m)
        blocks.append(private_quantile(counts, level, epsilon, rng))
    return np.concatenate(blocks)
