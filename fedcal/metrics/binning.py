"""The one binning function of the project, and the cells of histograms that rows count in.

Bins are equal in width and half open, [k/B, (k+1)/B), except the last one, which is closed. A value
and the edges are rounded to single precision before they are compared:

    bin(v) = min(#{k >= 1: float32(k/B) <= float32(v)}, B - 1)

So a score k/B belongs to bin k for every B, in float32 and in float64, and an error in the last
bits of a double, as softmax(log p) has, moves no score across an edge.

Metrics, client histograms and calibrator tables all call this function, so a probability falls
into the same bin wherever it is counted.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import InputError, integer
from fedcal.core.numerics import Floats, Integers, refuse_masked, row_max, row_sum

HIGHEST = 1.0 + 1e-3
"""A probability may lie so far above 1 (rounded files do) and falls into the last bin."""

ROUNDING = 1e-6
"""A probability may lie so far below 0 (differences of floats do) and is 0."""

MOST_BINS = 2**20

Counts = Literal["correct_wrong", "correct_total"]

_HALF = np.int64(1 << 28)  # of the last bit that a float32 has, in the bits of a double


def bin_index(values: ArrayLike, bins: int) -> Integers:
    """Return the bin of each value, as single precision holds it.

    Parameters
    ----------
    values
        any shape, in [0, 1]; up to 1 + 1e-3 is allowed and falls into the last bin
    bins
        in [1, 2**20]

    Returns
    -------
    Integers
        int64, same shape, in [0, bins)

    Raises
    ------
    InputError
        a value is negative, above 1 + 1e-3, or NaN; or `bins` is not allowed
    """
    integer("bins", bins, 1, MOST_BINS)
    refuse_masked("values", values)
    v = np.asarray(values, np.float64)
    if v.size and not (v.min() >= 0.0 and v.max() <= HIGHEST):  # a NaN fails the first
        raise InputError(f"values to bin must lie in [0, 1], got [{v.min():g}, {v.max():g}]")
    # 1e-30 is absorbed by all that is not in bin 0, and nothing underflows
    single = np.add(v, 1e-30, out=np.empty(v.shape, np.float32), casting="same_kind")
    # float32(k/B) <= x if k/B <= x + half of its last bit: times B that is exact, and floor counts
    x = single.astype(np.float64)
    np.bitwise_or(x.view(np.int64), _HALF, out=x.view(np.int64))
    index = np.multiply(x, bins, out=x).astype(np.int64)
    return np.minimum(index, bins - 1, out=index)


def one_vs_rest(probs: NDArray[Any]) -> NDArray[Any]:
    """Return the columns that need a histogram: all, or class 1 of two (the other mirrors it)."""
    return probs[:, 1:] if probs.shape[1] == 2 else probs


def tables(classes: int) -> int:
    """Return the number of one-vs-rest tables of a model with so many classes."""
    return 1 if classes == 2 else classes


def cells_of(probs: Floats, labels: Integers, bins: int) -> Integers:
    """Return each predicted probability's cell in a (2, tables, bins) array, positives first.

    Parameters
    ----------
    probs
        (n, c)
    labels
        (n,)

    Returns
    -------
    Integers
        (n, tables) int64 flat cells: P_j(b) if the row's label is j, else N_j(b)
    """
    columns = one_vs_rest(probs)
    m = columns.shape[1]
    negative = labels[:, None] != (np.arange(m) if m > 1 else 1)
    return np.asarray(bin_index(columns, bins) + np.arange(m) * bins + negative * (m * bins))


def pooled_cells_of(probs: Floats, labels: Integers, bins: int) -> Integers:
    """Return each predicted probability's cell if all classes share one pair of histograms.

    P(b) = sum_j P_j(b) = #{p_y in b}, so each row counts once in P, and N(b) = sum_j N_j(b) =
    #{j != y, p_j in b}. Of two classes N mirrors P, so P alone is counted; class 0's bins are
    the mirror images of class 1's, at the edges too.

    Returns (n, c) int64 cells of a (2, bins) array, positives first; two classes: (n, 1) of
    (bins,).
    """
    positive = labels[:, None] == np.arange(probs.shape[1])
    index = bin_index(one_vs_rest(probs), bins)
    if probs.shape[1] == 2:
        return np.where(positive[:, 1:], index, bins - 1 - index)
    return np.asarray(index + np.where(positive, 0, bins))


def top_confidence(shifted_logits: Floats) -> Floats:
    """Return each row's largest probability, 1 / sum_j exp(z_j - max z), (n, c) -> (n,)."""
    return np.asarray(1.0 / row_sum(np.exp(shifted_logits)))


def outcome_cells(probs: Floats, labels: Integers, bins: int) -> Integers:
    """Return each row's cell in a (2, bins) array, correct predictions first, (n,)."""
    return np.asarray(bin_index(row_max(probs), bins) + (probs.argmax(axis=1) != labels) * bins)
