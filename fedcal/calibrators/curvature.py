"""Gauss-Newton curvature J' (diag p - p p') J of each row's loss, in closed form.

Parameter j of the forms here moves one indicator of the class i that is drawn from p: 1{i = k}
(its score) or 1{i <= k} (all scores down to rank k), k = j mod c. With J's entry as `factors`,

    H[j, l] = factors_j factors_l Cov(indicator of j, indicator of l).

Complements 1 - p are added up from the other classes: of a confident row the difference has no
digits left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcal.types import Floats


def class_triangle(probs: Floats, factors: Floats) -> Iterator[Floats]:
    """Upper triangle of H for indicators 1{i = k}: p_k (1 - p_k), and -p_k p_l beside it.

    Parameters
    ----------
    probs : (n, c)
    factors : (n, m c)

    Yields
    ------
    (n, m c - j) : row j from its diagonal on, for each j
    """
    others = np.zeros_like(probs)
    others[:, 1:] = np.cumsum(probs[:, :-1], axis=1)
    others[:, :-1] += _tails(probs)
    c = probs.shape[1]
    for j in range(factors.shape[1]):
        k = j % c
        covariance = -probs[:, k : k + 1] * probs
        covariance[:, k] = probs[:, k] * others[:, k]
        yield _sandwich(covariance, factors, j)


def rank_triangle(probs: Floats, factors: Floats) -> Iterator[Floats]:
    """Upper triangle of H for indicators 1{i <= k}: S_k (1 - S_l) for k <= l, S the sums of p.

    Parameters and yields as `class_triangle`; the last rank's indicator is always 1, and has
    covariance 0.
    """
    up_to, above = np.cumsum(probs, axis=1), np.zeros_like(probs)
    above[:, :-1] = _tails(probs)
    c = probs.shape[1]
    for j in range(factors.shape[1]):
        k = j % c
        covariance = np.empty_like(probs)
        np.multiply(up_to[:, :k], above[:, k : k + 1], out=covariance[:, :k])
        np.multiply(up_to[:, k : k + 1], above[:, k:], out=covariance[:, k:])
        yield _sandwich(covariance, factors, j)


def rank_variances(probs: Floats) -> Floats:
    """Var 1{i <= k} = S_k (1 - S_k), (n, c) -> (n, c)."""
    out = np.zeros_like(probs)
    np.multiply(np.cumsum(probs[:, :-1], axis=1), _tails(probs), out=out[:, :-1])
    return out


def _tails(probs: Floats) -> Floats:
    """sum_{l > k} p_l for all k but the last, (n, c - 1)."""
    return np.cumsum(probs[:, :0:-1], axis=1)[:, ::-1]


def _sandwich(covariance: Floats, factors: Floats, j: int) -> Floats:
    times = factors.shape[1] // covariance.shape[1]
    row = np.tile(covariance, times)[:, j:]
    row *= factors[:, j:]
    row *= factors[:, j : j + 1]
    return row
