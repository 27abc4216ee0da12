"""Column of scores of each label that is a name: given, or guessed and then checked.

A wrong order is the worst error: every later number is plausible and false. So given names are
matched and never sorted. Without names, the assumed order is reported with its accuracy on the
rows, and refused if another order fits them better.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from fedcal.core.classes import MISSING, quoted
from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers
from fedcal.datasets.plausible_rows import check_rows


def guessed(words: Sequence[str], columns: int, positive: str | None) -> tuple[str, ...]:
    """Return the order of unnamed columns: sorted, as in scikit-learn.

    Parameters
    ----------
    words
        names among the labels, sorted
    positive
        class of the probabilities in a single column of scores

    Raises
    ------
    InputError
        If there are more or fewer names than columns.
    """
    if missing := [word for word in words if word in MISSING]:
        raise InputError(f"labels: {missing[0]!r} is missing: leave these rows out")
    if len(words) != columns:
        raise InputError(
            f"labels: {len(words)} names ({quoted(words)}) for {columns} columns of scores; give "
            f"whole numbers in [0, {columns - 1}], or name the columns by the classes (a "
            "file: prob_NAME or logit_NAME, or --class-names; arrays: classes=[...])"
        )
    if positive is not None and positive in words:
        return (*(word for word in words if word != positive), positive)
    return tuple(words)


def check_guess(names: Sequence[str], scores: Floats, labels: Integers) -> None:
    """Warn of an assumed order of classes, with numbers that show whether it is right.

    Parameters
    ----------
    names
        (c,) assumed order
    scores, labels
        (n, c) and (n,) rows that the caller may see

    Raises
    ------
    InputError
        If another order fits the rows far better: then the user must state the order.
    """
    check = check_rows(scores, labels, names)
    common = names[int(np.bincount(labels, minlength=len(names)).argmax())]
    summary = (
        f"right in {100 * check.accuracy:.1f} % of {len(labels):,} rows; always predicting "
        f"{common!r} in {100 * check.guessing:.1f} %"
    )
    if check.order is not None:
        order = list(names)
        for j, column in enumerate(check.order):
            order[column] = names[j]
        raise InputError(
            f"labels are names, and the order of the columns of scores is not given; in sorted "
            f"order ({quoted(names)}) the model is {summary}. Give the order by --class-names "
            f"(arrays: classes=[...]); {','.join(order)[:200]} fits these rows"
        )
    warnings.warn(
        f"labels are names, assigned to the columns in sorted order ({quoted(names)}): {summary}; "
        "give the order by --class-names (arrays: classes=[...])",
        stacklevel=5,
    )
