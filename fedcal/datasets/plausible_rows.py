"""Checks for labelled rows that are probably wrong: inverted scores, a single class.

The findings are exact facts about rows. They are for the holder of the rows only: a site's own
screen, a researcher's test rows. They must never leave a site.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.naming import called
from fedcal.core.numerics import Floats, Integers

LEAST_ROWS = 10
"""Fewest rows to check: fewer rows have a single label too often by chance."""

_LOG_CHANCE = math.log(1e3)
"""Uninformative scores are taken for inverted scores in at most one of a thousand sets of rows;
informative scores hardly ever."""

_FROM_1 = "Do the labels count from 1? Then name the classes by their numbers (--class-names)."
_LOW_AUC = 0.4
_GAINED = 0.25
"""Least gain of recall to report: a weak model may be a little worse than chance at a site."""


@dataclass(frozen=True)
class RowCheck:
    """Plausibility check of labelled rows.

    Attributes
    ----------
    accuracy
        fraction of the rows whose highest score is that of their label
    guessing
        accuracy of always naming the most frequent label
    order
        order of the columns of scores that fits the labels, if it clearly differs from theirs; else
        None. Column order[j] holds the scores of class j
    findings
        sentences about what is probably wrong, without a full stop; mostly none
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
        Two classes are in the wrong order if the AUC is below 0.4 by more than chance; more
        classes, if with the columns in another order the recall of the moved classes is far higher.
    """
    (n, c), shifted = scores.shape, False
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
            f"all {n:,} rows have the same label, {one}: nothing can be learnt about the others"
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
    elif shifted := count[0] == 0 and _counted_from_1(scores, labels):
        order = (c - 1, *range(c - 1))
    else:
        order = _better_order(scores, labels, count)
    if c > 2 and order is not None:
        moved = [j for j in range(c) if order[j] != j]
        some = "; ".join(f"{called(names, order[j])} for {called(names, j)}" for j in moved[:5])
        findings.append(
            f"the scores name {some}{'; ...' if len(moved) > 5 else ''}. "
            + (_FROM_1 if shifted else "Are the classes in the right order?")
        )
    if not findings and (count[scores.argmax(axis=1)] == 0).mean() > 0.5:
        findings.append(
            "most rows have their highest score for a class that no row belongs to: are these "
            "scores? Rows of features need the model that scores them (model=)"
        )
    return RowCheck(right, guessing, order, tuple(findings))


def doubts_of(
    where: str, scores: Floats, labels: Integers, names: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the findings of `check_rows`.

    Raises InputError, without a number of rows, if more than two classes are in another order than
    the columns: what would be computed means nothing. (An AUC far below a half may be a model's own
    fault.)
    """
    found = check_rows(scores, labels, names)
    if found.order is not None and len(found.order) > 2:
        raise InputError(f"{where}: {found.findings[0]}")
    return found.findings


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


def _counted_from_1(scores: Floats, labels: Integers) -> bool:
    """Return whether far more rows are right, by more than chance, if classes count from 1."""
    top, c = scores.argmax(axis=1), scores.shape[1]
    shares = (np.bincount(x, minlength=c) / len(labels) for x in (top, labels - 1))
    chance = np.prod([*shares], axis=0).sum()  # that both agree, of a model that knows nothing
    gain = float((top == labels - 1).mean() - max((top == labels).mean(), chance))
    return gain > max(_GAINED, math.sqrt(2 * _LOG_CHANCE / len(labels)))  # Hoeffding


def _better_order(scores: Floats, labels: Integers, count: Integers) -> tuple[int, ...] | None:
    """Return the order of the columns with the highest recall, if it is clearly better."""
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
    return tuple(int(j) for j in order)
