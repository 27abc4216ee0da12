"""Number of encoded misses that is too large, by the exact distribution of unary encoding.

K clients each send one bucket in optimal unary encoding (a 1 stays with probability 1/2, a 0
becomes 1 with probability q). If `a` clients are above a threshold with `cells` buckets above it,
the number of set bits above it is Bin(a, 1/2) + Bin(cells K - a, q). The server adds further coins
to thresholds with fewer buckets above them, so that all thresholds have the same distribution. Then
the argument of `fedcal.conformal.levels.levels` holds with misses in place of ranks: for n
exchangeable clients, n - Bin(n, u) at a uniform u is uniform on 0..n.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import bdtr

from fedcal.conformal.levels.levels import likely_ranks
from fedcal.conformal.set_release import Goal
from fedcal.core.types import Floats, Integers

_STEPS = 96
"""Numbers of misses at which the distribution is computed; others use the next lower one."""


@lru_cache(256)
def most_misses(clients: int, cells: int, flip: float, goal: Goal) -> int:
    """Return the largest number of set bits above a threshold that may be high enough.

    A threshold with more set bits is too low. The number is chosen so that coverage meets the goal.

    Parameters
    ----------
    clients
        K, all of which have rows
    cells
        buckets above a threshold, including those that were added
    flip
        q

    Returns
    -------
    int
        -1, less than any number of bits, if only sets of all labels cover enough.
    """
    zeros = cells * clients
    spread = 10.0 * math.sqrt(zeros * flip * (1 - flip) + clients / 4.0) / (0.5 - flip)
    middle = goal.alpha * clients
    low, high = max(0, math.floor(middle - spread)), min(clients, math.ceil(middle + spread))
    at = np.unique(np.linspace(low, high, _STEPS).round().astype(int))
    ends = np.append(at[1:], clients + 1)
    if goal.promise == "marginal":
        likely = (ends - at) / (clients + 1.0)
        wanted = 1.0 - goal.alpha
    else:
        likely = _below(ends, clients, goal.alpha) - _below(at, clients, goal.alpha)
        wanted = goal.confidence
    laws = [_bits(int(a), zeros - int(a), flip) for a in at]
    first, last = min(start for start, _ in laws), max(s + len(p) for s, p in laws)
    above = np.zeros(last - first + 1)  # P(bits > first + k - 1)
    for (start, law), share in zip(laws, likely, strict=True):
        tail = np.concatenate([[1.0], 1.0 - np.cumsum(law)])
        k = np.clip(np.arange(first, last + 1) - start, 0, len(law))
        above += share * np.maximum(tail[k] - 1e-9, 0.0)
    enough = np.flatnonzero(above >= wanted)
    return first + int(enough[-1]) - 1 if len(enough) else -1


def _below(k: Integers, clients: int, share: float) -> Floats:
    """Return P(Bin(clients, share) < k), of any shape."""
    return np.where(k > 0, bdtr(np.maximum(k - 1, 0), clients, share), 0.0)


def _bits(ones: int, zeros: int, flip: float) -> tuple[int, Floats]:
    """Return the first value of Bin(ones, 1/2) + Bin(zeros, flip), and probabilities from it on."""
    first, law = 0, np.ones(1)
    for number, share in ((ones, 0.5), (zeros, flip)):
        spread = 9.0 * math.sqrt(number * share * (1 - share)) + 9.0
        low = max(0, math.floor(number * share - spread))
        high = min(number, math.ceil(number * share + spread))
        k = np.arange(low, high + 1, dtype=np.float64)
        law = np.convolve(law, likely_ranks(k, number, share))
        first += low
    return first, np.asarray(law)
