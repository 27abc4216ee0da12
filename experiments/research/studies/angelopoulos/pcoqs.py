"""P-COQS: prediction sets by a noisy binary search for the quantile.

Romanus & Molinari, "Differentially Private Conformal Prediction via Quantile Binary Search"
(2507.12497). Written after the paper's abstract and the authors' R package and notebooks
(`SMAC-Group/pcoqs`): 34 halvings of [0, 1], each with its own Gaussian noise, and the end rounded
to two decimals. It was not run beside their program, and the paper's own statements of coverage
were not read in full.

Nothing in it makes up for the noise: it looks for the rank of split conformal prediction itself,
and what the search misses by noise it misses to either side. The paper says so ("slightly
under-covering"). Their notebooks set rho = epsilon**2 / 2, which at "epsilon = 1" is rho = 1/2:
(5.3, 1e-5)-differential privacy by the usual conversion, not (1, 1e-5), and no pure epsilon.
"""

from __future__ import annotations

import math

import numpy as np

from fedcal.core.types import Floats

PRECISION = 1e-10
"""Where the search ends."""

DIGITS = 2
"""Decimals of the threshold."""


def thresholds(
    scores: Floats, alpha: float, rho: float, rng: np.random.Generator, digits: int = DIGITS
) -> Floats:
    """Return a threshold for each set of rows.

    Parameters
    ----------
    scores
        (k, n) in [0, 1]
    alpha
        share of labels that may be missed
    rho
        of zero-concentrated differential privacy, of all steps together: each counts rows, which
        one row changes by one
    rng
        of the noise
    digits
        decimals that are kept

    Returns
    -------
    Floats
        (k,)
    """
    steps = math.ceil(math.log2(1 / PRECISION))
    sigma = math.sqrt(steps / (2 * rho))
    many, n = scores.shape
    rank = math.ceil(round((1 - alpha) * (n + 1), 9))
    left, right = np.zeros(many), np.ones(many)
    for _ in range(steps):
        middle = (left + right) / 2
        upto = np.count_nonzero(scores <= middle[:, None], axis=1)
        few = np.maximum(0, np.floor(upto + sigma * rng.standard_normal(many))) < rank
        left = np.where(few, middle + PRECISION, left)
        right = np.where(few, right, middle)
    return np.asarray(np.round((left + right) / 2, digits))
