"""The one binning function of the project, and the cells of histograms that rows count in.

Bins are equal in width and half open, [k/B, (k+1)/B), except the last one, which is closed. A value
and the edges are rounded to single precision before they are compared:

    bin(v) = min(#{k >= 1: float32(k/B) <= float32(v)}, B - 1)

So a score k/B belongs to bin k for every B, in float32 and in float64, and an error in the last
bits of a double, as softmax(log p) has, moves no score across an edge.

Metrics, client histograms and calibrator tables all call this function, so a probability falls
into the same bin wherever it is counted.

Score and outcome of a row, and buckets of scores.

==============  ===============================  =======================  ========
name            score                            outcome                  parts
==============  ===============================  =======================  ========
``positive``    p_1 (two classes)                whether the label is 1   1
``confidence``  the largest probability          whether that class is    1
                                                 the label
``classes``     p_j, of every class j            whether the label is j   c
==============  ===============================  =======================  ========
"""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import InputError, one_of, whole
from fedcal.core.numerics import FLOOR, Floats, Integers, refuse_masked, row_max, row_sum

HIGHEST = 1.0 + 1e-3
"""A probability may lie so far above 1 (rounded files do) and falls into the last bin."""

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
    whole("bins", bins, 1, MOST_BINS)
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


def count_cells(cells: Integers, size: int, owner: Integers, clients: int) -> Integers:
    """Count each client's rows, (n,) their `owner`, in cells, (n, k): (clients, size) int64.

    Of `cells_of` P_j(b) = #{y = j, p_j in b}, then N_j(b) = #{y != j, p_j in b} (Algorithm 1); of
    `pooled_cells_of` P, then N.
    """
    counts = np.bincount((cells + (owner * size)[:, None]).ravel(), minlength=clients * size)
    return counts.reshape(clients, size)


def top_confidence(shifted_logits: Floats) -> Floats:
    """Return each row's largest probability, 1 / sum_j exp(z_j - max z), (n, c) -> (n,)."""
    return np.asarray(1.0 / row_sum(np.exp(shifted_logits)))


def outcome_cells(probs: Floats, labels: Integers, bins: int) -> Integers:
    """Return each row's cell in a (2, bins) array, correct predictions first, (n,)."""
    return np.asarray(bin_index(row_max(probs), bins) + (probs.argmax(axis=1) != labels) * bins)


Score = Literal["positive", "confidence", "classes"]

DIGITS = 12
"""Decimals of a probability that are looked at: the last bits of a double decide nothing."""

BELOW_HALF = 0.5 - 2.0**-25
"""Largest single-precision number below 1/2."""


def check_score(score: str, classes: int) -> Score:
    """Return the score if a model with so many classes has it; "" = its default."""
    if score == "":
        return "positive" if classes == 2 else "confidence"
    if score == "positive" and classes != 2:
        return one_of(f"score of a model of {classes} classes", score, ("confidence", "classes"))
    return one_of("score", score, get_args(Score))


def scored(probs: Floats, labels: Integers, score: Score) -> tuple[Floats, Integers]:
    """Return the scores and outcomes of rows.

    Class 1 of two is predicted above 1/2 only, as by argmax everywhere else: a `positive` score of
    1/2 becomes `BELOW_HALF`.

    Parameters
    ----------
    probs
        (n, c)
    labels
        (n,)

    Returns
    -------
    tuple[Floats, Integers]
        (n, parts) in [0, 1], (n, parts) 0 or 1
    """
    scores = np.round(probs, DIGITS)
    if score == "positive":
        p = scores[:, 1:]
        return np.where(p <= 0.5, np.minimum(p, BELOW_HALF), p), labels[:, None]
    if score == "classes":
        return scores, (labels[:, None] == np.arange(probs.shape[1])).astype(np.int64)
    hit = probs.argmax(axis=1) == labels
    return scores.max(axis=1, keepdims=True), hit[:, None].astype(np.int64)


def score_and_outcome(probs: Floats, labels: Integers) -> tuple[Floats, Floats]:
    """Return each row's score and outcome by the default score of so many classes, (n,) each."""
    score, outcome = scored(probs, labels, check_score("", probs.shape[1]))
    return score[:, 0], outcome[:, 0].astype(np.float64)


def has_nodes(edges: Floats) -> bool:
    """Return whether the two outermost buckets of each end are nodes: its end lies at 1e-12.

    Scores of a tail, below the second edge or above the last but one, do not lie where their bucket
    says: each row is in the two nodes by its logarithm, see `far_share`.
    """
    return len(edges) > 5 and bool(edges[1] == FLOOR)


def far_share(probs: Floats, score: Score, edges: Floats) -> Floats:
    """Return how far on the way from the inner to the outer node a score's logarithm is.

    So the mean of the logarithm, up to the floor of 1e-12, follows from the counts of both nodes.

    Parameters
    ----------
    probs
        (n, c)
    score
        "positive" or "confidence"
    edges
        of buckets with nodes

    Returns
    -------
    Floats
        (n,) in [-1, 1]: below 0 at the lower end, above 0 at the upper one, 0 between tails; in
        steps of 2**-20, which are exact in sums
    """
    probs = probs if score == "positive" else np.sort(probs, axis=1)
    value, rest = probs[:, -1], probs[:, :-1].sum(axis=1)  # 1 - value would have few digits
    low = value < rest
    near = np.log(np.where(low, edges[2], 1 - edges[-3]))
    share = (near - np.log(np.maximum(np.minimum(value, rest), FLOOR))) / (near - np.log(FLOOR))
    steps = np.rint(np.clip(share, 0.0, 1.0) * 2**20)
    return np.asarray(np.where(low, -steps, steps) / 2**20)


def bucket_of(scores: Floats, edges: Floats) -> Integers:
    """Return each score's bucket; a score on an edge is in the bucket above, 1 in the last.

    Scores and edges are compared in single precision, as in `fedcal.metrics.binning`.
    """
    place = np.searchsorted(edges.astype(np.float32), scores.astype(np.float32), side="right")
    return np.clip(place - 1, 0, len(edges) - 2)


def equal_width(buckets: int) -> Floats:
    """Return the edges of buckets of equal width, (buckets + 1,)."""
    return np.arange(buckets + 1) / buckets


def arcsine_edges(buckets: int) -> Floats:
    """Return edges equally spaced in arcsin sqrt(score), (buckets + 1,).

    An even number has edge 1/2. They suit scores that crowd at both ends, and those in the middle.
    """
    edges = np.sin(np.arange(buckets + 1) * (np.pi / (2 * buckets))) ** 2
    edges[-1] = 1.0
    if buckets % 2 == 0:
        edges[buckets // 2] = 0.5
    return np.asarray(edges)


def fine_tails(buckets: int, *, nodes: bool) -> Floats:
    """Return edges of equal width, with the first and last bucket halved repeatedly to its end.

    Scores of good models crowd there: the ranking, and what is read from log-odds, would be lost.
    With `nodes` the two outermost buckets of each end are nodes; see `has_nodes`.

    Returns (buckets + 2 * HALVINGS + 1,).
    """
    tail = 0.5 ** np.arange(HALVINGS, 0, -1) / buckets
    if nodes:
        tail[0] = FLOOR
    return np.concatenate([[0.0], tail, equal_width(buckets)[1:-1], 1.0 - tail[::-1], [1.0]])


HALVINGS = 8
"""Number of halvings of an outer bucket: 240 buckets of equal width make 256."""
