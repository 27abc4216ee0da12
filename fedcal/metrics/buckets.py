"""Score and outcome of a row, and buckets of scores.

==============  ===============================  =======================  ========
name            score                            outcome                  parts
==============  ===============================  =======================  ========
``positive``    p_1 (two classes)                whether the label is 1   1
``confidence``  the largest probability          whether that class is    1
                                                 the label
``classes``     p_j, of every class j            whether the label is j   c
==============  ===============================  =======================  ========
"""

from typing import Literal, get_args

import numpy as np

from fedcal.core.checks import one_of
from fedcal.core.numerics import FLOOR
from fedcal.core.types import Floats, Integers

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
