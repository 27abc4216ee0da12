"""How many encoded misses are too many: the exact law of optimal unary encoding.

Of K clients that each send one bucket in unary encoding (a 1 stays with probability 1/2, a 0
becomes 1 with probability q), the bits of the buckets above a threshold are, where `a` clients are
above it, Bin(a, 1/2) + Bin(cells K - a, q), with `cells` buckets above. The server adds further
coins to those that have fewer buckets above them, so that all thresholds have one law; then the
argument of `fedcal.conformal.levels.levels` holds with misses in place of ranks: of n exchangeable
clients, n - Bin(n, u) at a uniform u is uniform on 0..n.
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
"""Numbers of misses at which the law is computed; between two that of the lower one counts."""


@lru_cache(256)
def most_misses(clients: int, cells: int, flip: float, goal: Goal) -> int:
    """The most set bits above a threshold with which it still may be high enough.

    A threshold with more of them is too low. Chosen so that thresholds cover as the goal says.

    Parameters
    ----------
    clients
        K, who all have rows
    cells
        buckets above a threshold, with those that were added
    flip
        q

    Returns
    -------
    int
        Less than any number of bits where only all labels cover enough.
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
    """P(Bin(clients, share) < k)."""
    return np.where(k > 0, bdtr(np.maximum(k - 1, 0), clients, share), 0.0)


def _bits(ones: int, zeros: int, flip: float) -> tuple[int, Floats]:
    """The law of Bin(ones, 1/2) + Bin(zeros, flip): its first number, and probabilities."""
    first, law = 0, np.ones(1)
    for number, share in ((ones, 0.5), (zeros, flip)):
        spread = 9.0 * math.sqrt(number * share * (1 - share)) + 9.0
        low = max(0, math.floor(number * share - spread))
        high = min(number, math.ceil(number * share + spread))
        k = np.arange(low, high + 1, dtype=np.float64)
        law = np.convolve(law, likely_ranks(k, number, share))
        first += low
    return first, np.asarray(law)
