"""Labelled rows that are probably not what they are taken for: inverted scores, a single class.

The findings are exact facts about rows. They are for whoever holds these: a site's own screen, a
researcher's test rows. Nothing of them may leave a site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcal.core.classes import called
from fedcal.core.types import Floats, Integers

LEAST_ROWS = 10
"""Of fewer rows nothing is said: by chance they have one label too often."""

_LOG_CHANCE = math.log(1e3)
"""Scores that know nothing are taken for inverted ones in at most one of a thousand sets of rows;
scores that know something hardly ever."""

_LOW_AUC = 0.4
_GAINED = 0.25
"""A weak model may be a little worse than chance at a site; what is said is far from it."""


@dataclass(frozen=True)
class RowCheck:
    """What labelled rows look like.

    Attributes
    ----------
    accuracy
        share of the rows whose highest score is that of their label
    guessing
        accuracy of always naming the most frequent label
    order
        columns of the scores in the order that fits the labels, where that is clearly another
        one than the order they are in; else None. Column order[j] holds the scores of class j
    findings
        whole sentences about what is probably wrong, without a full stop; mostly none
    """

    accuracy: float
    guessing: float
    order: tuple[int, ...] | None
    findings: tuple[str, ...]


def check_rows(scores: Floats, labels: Integers, names: Sequence[str] | None = None) -> RowCheck:
    """Look for scores whose columns are in another order than the classes, and for a single class.

    Parameters
    ----------
    scores
        (n, c) logits or probabilities, n >= 1
    labels
        (n,) in [0, c)
    names
        of the c classes

    Returns
    -------
    RowCheck
        Two classes are in the wrong order if the AUC is below 0.4 by more than chance; more, if
        with the columns in another order the classes that move would be found far more often.
    """
    n, c = scores.shape
    right = float((scores.argmax(axis=1) == labels).mean())
    count = np.bincount(labels, minlength=c)
    guessing = float(count.max() / n)
    order: tuple[int, ...] | None = None
    findings: list[str] = []
    if n < LEAST_ROWS:
        return RowCheck(right, guessing, order, ())
    if (count > 0).sum() == 1:
        one = called(names, int(count.argmax()))
        findings.append(
            f"all {n:,} rows have the same label, {one}: nothing is to be learned about the others"
        )
    elif c == 2:
        auc, sure = _auc(scores[:, 1] - scores[:, 0], labels)
        if sure and auc < _LOW_AUC:
            order = (1, 0)
            findings.append(
                f"the scores rank rows the wrong way round: rows of {called(names, 1)} have lower "
                f"scores for it than the others (AUC {100 * auc:.0f} %; guessing: 50 %). Are the "
                "two classes in the right order?"
            )
    else:
        order = _better_order(scores, labels, count)
    if c > 2 and order is not None:
        then = float((scores[:, order].argmax(axis=1) == labels).mean())
        moved = [j for j in range(c) if order[j] != j]
        some = "; ".join(f"{called(names, order[j])} for {called(names, j)}" for j in moved[:5])
        findings.append(
            f"the scores name {some}{'; ...' if len(moved) > 5 else ''}: accuracy is "
            f"{100 * right:.0f} % (always naming the most frequent class: {100 * guessing:.0f} %), "
            f"and {100 * then:.0f} % with the columns in that order. Are the classes in the right "
            "order?"
        )
    if not findings and (count[scores.argmax(axis=1)] == 0).mean() > 0.5:
        findings.append(
            "most rows have their highest score for a class that none of them is of: are these "
            "scores? Rows of features need the model that scores them (model=)"
        )
    return RowCheck(right, guessing, order, tuple(findings))


def _auc(score: Floats, labels: Integers) -> tuple[float, bool]:
    """AUC of class 1, and whether chance alone is further from 1/2 hardly ever."""
    positive = int(labels.sum())
    negative = len(labels) - positive
    _, place, ties = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    above = ranks[labels == 1].sum() - positive * (positive + 1) / 2
    auc = float(above / (positive * negative))
    variance = (len(labels) + 1) / (12 * positive * negative)
    return auc, (auc - 0.5) ** 2 > 2 * _LOG_CHANCE * variance


def _better_order(scores: Floats, labels: Integers, count: Integers) -> tuple[int, ...] | None:
    """The order of the columns in which classes are found most often, if it is clearly better."""
    c, there = scores.shape[1], np.flatnonzero(count)  # of other classes nothing is seen
    cells = np.bincount(labels * c + scores.argmax(axis=1), minlength=c * c).reshape(c, c)
    # recall, not rows: a frequent class would pull the others
    recall = cells[np.ix_(there, there)] / count[there, None]
    recall[np.diag_indices(len(there))] += 1e-9  # what is equally good stays
    if (recall.argmax(axis=1) == np.arange(len(there))).all():
        return None
    from scipy.optimize import linear_sum_assignment  # slow to import

    best = linear_sum_assignment(recall, maximize=True)[1]
    rows = np.flatnonzero(best != np.arange(len(there)))
    now, then = recall[rows, rows].sum(), recall[rows, best[rows]].sum()
    # Hoeffding, over at most c**rows orders: a row adds at most 1 / count to a recall
    most = 2 * (1 / count[there[rows]]).sum() * (len(rows) * math.log(c) + _LOG_CHANCE)
    if then <= 2 * now or then - now < _GAINED * len(rows) or (then - now) ** 2 <= most:
        return None
    order = np.arange(c)
    order[there] = there[best]
    return tuple(int(j) for j in order)
