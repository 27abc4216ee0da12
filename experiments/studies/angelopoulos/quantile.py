"""The private quantile of Angelopoulos, Bates, Zrnic & Jordan, "Private Prediction Sets" (2024).

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

import math
from functools import cache

import numpy as np

from fedcal.core.checks import fraction
from fedcal.core.numerics import Floats, Integers, Purpose, stream

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


def quantile_costs(counts: Floats | Integers, q: float) -> Floats:
    """Return the exponential mechanism's cost of each bin as the q-quantile.

    Parameters
    ----------
    counts
        (..., m) rows in each bin
    q
        level in [0, 1]

    Returns
    -------
    Floats
        (..., m): max{(1-q)/q #<, #>} for q >= 1/2, else max{#<, q/(1-q) #>}, where #< and #> are
        the rows in bins below and above. An added row raises each cost by 0 to 1.
    """
    upto = np.cumsum(counts, axis=-1, dtype=np.float64)
    below, above = upto - counts, upto[..., -1:] - upto
    if q >= 0.5:
        below *= (1 - q) / q
    else:
        above *= q / (1 - q)
    return np.asarray(np.maximum(below, above, out=below))
