"""Laplace noise on a sum over sources, under the two ways to trust.

Unit example, add/remove: one row of one source more or less changes each sum by at most its L1
sensitivity. A search that asks k times spends epsilon / k on each answer, and so the scale of each
Laplace draw is k Delta / epsilon (Luo et al., Algorithm 1: (K + 1) / epsilon).

* `local`: every source adds its own draw, as in the paper: it is the trusted curator of its rows,
  and nobody else is trusted. The sum over d sources has d draws.
* `central`: one draw on the exact sum, by a trusted server; the same law where the sources add
  shares to a secure sum (`distributed`). Its standard deviation is sqrt(d) times less.
"""

from __future__ import annotations

import numpy as np

from fedcal.trust import TRUSTS, Central, Local

NOISES = (Local.name, Central.name)


def draws(noise: str, sources: int) -> int:
    """How many Laplace draws a released sum holds."""
    return round(TRUSTS[noise].noises(sources, 1))


def noise_scale(sensitivity: float, epsilon: float, evaluations: int) -> float:
    """Scale of each Laplace draw of a search.

    Parameters
    ----------
    sensitivity : L1, of one answer
    epsilon : of all answers together; infinity = without noise
    evaluations : how many answers share it
    """
    return evaluations * sensitivity / epsilon


def laplace_std(scale: float, draws: int) -> float:
    """Standard deviation of `laplace_sum`."""
    return float(scale * np.sqrt(2.0 * draws))
