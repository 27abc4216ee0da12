"""Row-wise sums, softmax and their kin, with the same bits for a row wherever it stands.

A client alone and the same client inside a block of thousands must compute the same numbers to
the last bit (that is how the engines agree). So every reduction here runs along one row only,
in an order that depends on the number of classes and on nothing else. A matrix product over the
rows of several clients does not have that property and is not used; one over a client's own rows
has it, up to `INNER` rows at a time.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.types import Floats, Integers

FLOOR = 1e-12
"""Probabilities are raised to this before a logarithm is taken. It moves optima a little: the
CIFAR-100 network's best temperature is 1.93 with a floor of 1e-7 and 2.12 with 1e-12."""

LARGEST_LOGIT = 1e100
"""Beyond this, differences and squares of logits would overflow."""

LOG_A_LIMIT = math.log(20.0)
"""|log T| of a fitted temperature stays within this: rows without errors have their optimum at
T = 0."""

INNER = 64
"""Terms that a matrix product may add up at once: with more, BLAS may split the sum over threads,
and its bits depend on how many there are."""

_FEW = 32  # up to so many columns, adding column by column is faster than numpy's row reduction


def product(a: Floats, b: Floats) -> Floats:
    """Matrix product that adds up at most `INNER` terms at once, (..., n, m), (..., m, c)."""
    out = np.matmul(a[..., :INNER], b[..., :INNER, :])
    for i in range(INNER, a.shape[-1], INNER):
        out += np.matmul(a[..., i : i + INNER], b[..., i : i + INNER, :])
    return np.asarray(out)


def row_sum(x: NDArray[Any]) -> NDArray[Any]:
    """Sum along each row, shape (n, c) -> (n,)."""
    if x.shape[1] > _FEW:
        return np.asarray(np.ascontiguousarray(x).sum(axis=1))
    if len(x) > 1 and x.strides[0] == x.itemsize < x.strides[1]:  # as `by_class` leaves it
        return np.asarray(np.add.reduce(x.T, axis=0))  # adds columns in the same order
    return _by_columns(np.add, x)


def row_max(x: NDArray[Any]) -> NDArray[Any]:
    """Largest entry of each row, shape (n, c) -> (n,)."""
    if x.shape[1] > _FEW:
        return np.asarray(x.max(axis=1))
    return _by_columns(np.maximum, x)


def _by_columns(combine: np.ufunc, x: NDArray[Any]) -> NDArray[Any]:
    total: NDArray[Any] = x[:, 0].copy()
    for j in range(1, x.shape[1]):
        combine(total, x[:, j], out=total)
    return total


def shifted(logits: Floats) -> Floats:
    """Logits minus their row's largest, shape (n, c): softmax does not see the difference."""
    return np.asarray(logits - row_max(logits)[:, None])


def by_class(x: Floats) -> Floats:
    """Return the same numbers with each class in a piece of memory, unless there are many classes.

    Passes over few columns are then three times as fast; no bit of `row_sum` changes.
    """
    return x if x.shape[1] > _FEW else np.asfortranarray(x)


def softmax(logits: Floats) -> Floats:
    """Probabilities, shape (n, c) -> (n, c)."""
    e = np.exp(shifted(logits))
    e /= row_sum(e)[:, None]
    return np.asarray(e)


def softplus(x: Floats) -> Floats:
    """log(1 + exp(x)) without overflow, shape kept."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), the derivative of softplus, without overflow, shape kept."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def logits_from_probs(probs: Floats) -> Floats:
    """log(max(p, 1e-12)), shape kept: the logits of a model that only tells probabilities."""
    return np.log(np.maximum(probs, FLOOR))


def label_entries(x: Floats, labels: Integers) -> Floats:
    """x[i, labels[i]], shape (n, c), (n,) -> (n,)."""
    return np.asarray(x[np.arange(len(labels)), labels])


def log_grid(low: float, high: float, points: int) -> Floats:
    """Logarithms of a public grid of temperatures, evenly spaced, (points,)."""
    return np.linspace(math.log(low), math.log(high), points)


def tempered_mean(shifted_logits: NDArray[Any], a: Any) -> NDArray[Any]:
    """Return the mean of `tempered_moments` alone, with the same bits, (n, c) -> (n,)."""
    e = shifted_logits * a
    np.exp(e, out=e)
    s0 = row_sum(e)
    e *= shifted_logits
    return np.asarray(row_sum(e) / s0)


def tempered_moments(shifted_logits: NDArray[Any], a: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and variance of the logits under softmax(a z), row by row.

    They are all that temperature scaling needs: with a = 1/T, row i's negative log-likelihood
    has d/da = mean_i - z_i[y_i] and d2/da2 = var_i >= 0.

    Parameters
    ----------
    shifted_logits
        (n, c), each row's largest entry 0 (so that nothing overflows)
    a
        inverse temperature, a scalar or (n, 1)

    Returns
    -------
    tuple[NDArray[Any], NDArray[Any]]
        (n,), (n,)
    """
    e = shifted_logits * a
    np.exp(e, out=e)
    s0 = row_sum(e)
    e *= shifted_logits
    mean = row_sum(e) / s0
    e *= shifted_logits
    return mean, row_sum(e) / s0 - mean * mean
