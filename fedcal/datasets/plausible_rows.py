"""Checks for labelled rows that are probably wrong: inverted scores, a single class.

The findings are exact facts about rows. They are for the holder of the rows only: a site's own
screen, a researcher's test rows. They must never leave a site.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.naming import called, listed
from fedcal.core.numerics import Floats, Integers

LEAST_ROWS = 10
"""Fewest rows to check: fewer rows have a single label too often by chance."""

_LOG_CHANCE = math.log(1e3)
"""Uninformative scores are taken for inverted scores in at most one of a thousand sets of rows;
informative scores hardly ever."""

_ORDER = "Are the classes in the right order? Labels count from 0 where classes have no names."
_LOW_AUC = 0.4
_GAINED = 0.25
"""Least gain of recall to report: a weak model may be a little worse than chance at a site."""


def doubts_of(
    where: str, scores: Floats, labels: Integers, names: Sequence[str] | None = None
) -> list[str]:
    """Return sentences about what is probably wrong, without a full stop; mostly none.

    Two classes are in the wrong order if the AUC is below 0.4 by more than chance (it may be the
    model's own fault); more classes, if with the columns in another order the recall of the moved
    classes is far higher.

    Raises InputError, without a number of rows, if more than two classes are in another order than
    the columns: what would be computed means nothing.

    Parameters
    ----------
    where
        what the rows are called
    scores
        (n, c) logits or probabilities, n >= 1
    labels
        (n,) in [0, c)
    names
        of the c classes
    """
    n, c = scores.shape
    count = np.bincount(labels, minlength=c)
    if n < LEAST_ROWS:
        return []
    if (count > 0).sum() == 1:
        one = called(names, int(count.argmax()))
        return [
            f"all {n:,} rows have the same label, {one}: nothing can be learnt about the others"
        ]
    if c == 2:
        auc, sure = _auc(scores[:, 1] - scores[:, 0], labels)
        if sure and auc < _LOW_AUC:
            return [
                f"the scores rank rows the wrong way round: rows of {called(names, 1)} have lower "
                f"scores for it than the others (AUC {100 * auc:.0f} %; guessing: 50 %). Are the "
                "two classes in the right order?"
            ]
    elif count[0] == 0 and counted_from_1(scores, labels):
        raise InputError(f"{where}: the scores name each class one lower than its label. {_ORDER}")
    elif (order := _better_order(scores, labels, count)) is not None:
        moved = np.flatnonzero(order != np.arange(c)).tolist()
        some = [f"{called(names, order[j])} for {called(names, j)}" for j in moved]
        raise InputError(f"{where}: the scores name {listed(some, '; ')}. {_ORDER}")
    if (count[scores.argmax(axis=1)] == 0).mean() > 0.5:
        return [
            "most rows have their highest score for a class that no row belongs to: are these "
            "scores? Rows of features need the model that scores them (model=, or CalibratedModel)"
        ]
    return []


def _auc(score: Floats, labels: Integers) -> tuple[float, bool]:
    """Return the AUC of class 1, and whether it differs from 1/2 by more than chance."""
    positive = int(labels.sum())
    negative = len(labels) - positive
    _, place, ties = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    above = ranks[labels == 1].sum() - positive * (positive + 1) / 2
    auc = float(above / (positive * negative))
    variance = (len(labels) + 1) / (12 * positive * negative)
    return auc, (auc - 0.5) ** 2 > 2 * _LOG_CHANCE * variance


def counted_from_1(scores: Floats, labels: Integers) -> bool:
    """Return whether far more rows are right, by more than chance, if classes count from 1.

    `scores` are (n, c), `labels` (n,) in [0, c). Like all here it must not leave the rows' holder.
    """
    top, c = scores.argmax(axis=1), scores.shape[1]
    shares = (np.bincount(x, minlength=c) / len(labels) for x in (top, labels - 1))
    chance = np.prod([*shares], axis=0).sum()  # that both agree, of a model that knows nothing
    right, sure = (top == labels - 1).mean(), math.sqrt(2 * _LOG_CHANCE / len(labels))  # Hoeffding
    better = right - (top == labels).mean() > max(_GAINED, sure)  # a difference: range of 2
    return bool(better and right - chance > max(_GAINED, sure / 2))


def _better_order(scores: Floats, labels: Integers, count: Integers) -> Integers | None:
    """Return the order of the columns with the highest recall, if it is clearly better.

    Column order[j] holds the scores of class j.
    """
    c, there = scores.shape[1], np.flatnonzero(count)  # other classes have no rows
    cells = np.bincount(labels * c + scores.argmax(axis=1), minlength=c * c).reshape(c, c)
    # recall, not rows: a frequent class would dominate the others
    recall = cells[np.ix_(there, there)] / count[there, None]
    recall[np.diag_indices(len(there))] += 1e-9  # in a tie the order stays
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
    return order
