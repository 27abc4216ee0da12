"""From an exact sum to something that may be released. Central trust: the server adds noise.

Formal guarantees (unit: user; adjacency: zero-out; the input is a sum of bounded contributions)

* `gaussian`: noise of std `multiplier * bound.sensitivity * norm_b` in block b. One release of
  it is a Gaussian mechanism with noise multiplier `multiplier`; composition and amplification
  are `accounting`'s. The noise is rounded to the ring's grid and added to the integer sum, so
  the floating-point holes of a real-valued sum cannot leak (post-processing of rounding).
* `exponential`: draws index i with probability ~ exp(-epsilon |S_i| / (2 C)), where C is the
  bound of each coordinate; |S_i| changes by at most C between neighbours, so the draw is
  epsilon-DP with delta = 0 (McSherry & Talwar 2007; Asi & Duchi 2020 for the inverse
  sensitivity view). Only the index is released.

The generators passed in are seeded: good for simulation, no protection against whoever knows
the seed. In this version normal variates and the exponential mechanism's probabilities are
double precision: a candidate of true probability below about 1e-16 is never drawn.
"""

from __future__ import annotations

import numpy as np

from fedcal.privacy.bounding import Bound
from fedcal.secure_aggregation import Ring
from fedcal.types import Floats, Words

TAIL = 9.2
"""No normal variate beyond so many stds is expected (probability 2**-60 each); room for it is
kept in the ring."""


def gaussian_std(bound: Bound, multiplier: float) -> Floats:
    """Noise std of each coordinate of the sum, shape (length,)."""
    return bound.scale * (multiplier * bound.sensitivity)


def gaussian(total: Words, ring: Ring, std: Floats, rng: np.random.Generator) -> Words:
    """The sum plus Gaussian noise on the grid, shape (length,) uint64."""
    noise = np.rint(rng.standard_normal(len(std)) * (std / ring.grid)).astype(np.int64)
    return ring.add(total, noise)


def exponential(scores: Floats, epsilon: float, norm: float, rng: np.random.Generator) -> int:
    """Index drawn by the exponential mechanism, small |score| preferred.

    Parameters
    ----------
    scores : (candidates,) exact sums S_i
    epsilon : budget of this one draw
    norm : C, what one client changes any S_i by
    """
    logits = -np.abs(scores) * (epsilon / (2.0 * norm))
    weights = np.exp(logits - logits.max())
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
