"""Gauss-Newton curvature J' (diag p - p p') J, in closed form, summed over blocks of rows.

Parameter j of the forms here moves the indicator 1{i = k}, k = j mod c, of the class i that is
drawn from p. With J's entry as `factors`,

    H[j, l] = sum over rows of factors_j factors_l Cov(indicator of j, indicator of l).

Complements 1 - p are added up from the other classes: of a confident row the difference has no
digits left.

A block is `rows` rows of *one* client, one behind the other, and its sum is one small matrix
product of a shape of its own. So it has the same bits alone and among other blocks and, with at
most 64 rows, for any number of threads of the library that multiplies.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedcal.core.types import Floats, Integers


def class_triangle(probs: Floats, factors: Floats, rows: int) -> Floats:
    """Return H's upper triangle for indicators 1{i = k}: p_k (1 - p_k), and -p_k p_l beside it.

    Parameters
    ----------
    probs
        (blocks rows, c)
    factors
        (blocks rows, size), size a multiple of c
    rows
        number of rows of each block

    Returns
    -------
    Floats
        (blocks, size (size + 1) / 2) row by row
    """
    others = np.zeros_like(probs)
    others[:, 1:] = np.cumsum(probs[:, :-1], axis=1)
    others[:, :-1] += _tails(probs)
    c, size = probs.shape[1], factors.shape[1]
    drawn = factors * np.tile(probs, size // c)
    out = product_triangle(-drawn, drawn, rows)
    first, second = _pairs(size)
    same = np.flatnonzero(first % c == second % c)
    first, second = first[same], second[same]
    variances = factors[:, first] * (probs * others)[:, first % c] * factors[:, second]
    out[:, same] = variances.reshape(-1, rows, len(same)).sum(axis=1)
    return out


def product_triangle(left: Floats, right: Floats, rows: int) -> Floats:
    """Return left' right's upper triangle by block: (blocks rows, size) as `class_triangle`."""
    size = left.shape[1]
    first, second = _pairs(size)
    a, b = left.reshape(-1, rows, size), right.reshape(-1, rows, size)
    product = np.matmul(a.swapaxes(1, 2), b).reshape(-1, size * size)
    return np.asarray(np.take(product, first * size + second, axis=1))


def rank_variances(probs: Floats) -> Floats:
    """Return Var 1{i <= k} = S_k (1 - S_k), (n, c) -> (n, c)."""
    out = np.zeros_like(probs)
    np.multiply(np.cumsum(probs[:, :-1], axis=1), _tails(probs), out=out[:, :-1])
    return out


def _tails(probs: Floats) -> Floats:
    """Return sum_{l > k} p_l for all k but the last, (n, c - 1)."""
    return np.cumsum(probs[:, :0:-1], axis=1)[:, ::-1]


@lru_cache(maxsize=8)
def _pairs(size: int) -> tuple[Integers, Integers]:
    """Return row and column of each entry of the upper triangle."""
    first, second = np.triu_indices(size)
    first.flags.writeable = second.flags.writeable = False
    return first, second
