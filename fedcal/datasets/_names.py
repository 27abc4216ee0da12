"""Column of scores of each label that is a name: given, or guessed and then checked.

A wrong order is the worst error: every later number is plausible and false. So given names are
matched and never sorted. Without names, the assumed order is reported with its accuracy on the
rows, and refused if another order fits them better.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.classes import first_names
from fedcal.core.errors import InputError
from fedcal.core.scores import as_array
from fedcal.core.types import Floats, Integers
from fedcal.datasets.plausible_rows import check_rows


def words_among(parts: Sequence[Any]) -> list[str]:
    """Return the names among labels, sorted; [] if all labels are numbers, as text or not."""
    arrays = [as_array("labels", part) for part in parts if part is not None]
    words = {str(word) for part in arrays if part.dtype.kind == "U" for word in part.flat}
    return [] if all(word.isascii() and word.isdecimal() for word in words) else sorted(words)


def check_words(words: Sequence[str], names: Sequence[str]) -> None:
    """Raise InputError for the first label that is not the name of a column."""
    for word in words:
        if word not in names:
            lower = {name.lower(): name for name in names}
            near = get_close_matches(word.lower(), lower, 1, 0.6)
            hint = f"; did you mean {lower[near[0]]!r}?" if near else ""
            raise InputError(
                f"labels: {word[:80]!r} is not among the class names of the columns of scores "
                f"({_listed(names)}){hint}"
            )


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
    if len(words) != columns:
        raise InputError(
            f"labels: {len(words)} names ({_listed(words)}) for {columns} columns of scores; give "
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
            f"order ({_listed(names)}) the model is {summary}. Give the order by --class-names "
            f"(arrays: classes=[...]); {','.join(order)[:200]} fits these rows"
        )
    warnings.warn(
        f"labels are names, assigned to the columns in sorted order ({_listed(names)}): {summary}; "
        "give the order by --class-names (arrays: classes=[...])",
        stacklevel=5,
    )


def places(names: Sequence[str] | None, labels: Any) -> NDArray[Any]:
    """Return labels with each name replaced by the number of its column."""
    array = as_array("labels", labels)
    if array.dtype.kind != "U":
        return array
    known = {} if names is None else {name: j for j, name in enumerate(names)}
    codes = [known[word] if word in known else int(word) for word in map(str, array.flat)]
    return np.array(codes, np.int64).reshape(array.shape)


def own_names(frame: Any, classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of classes from the columns of a pandas frame of scores, or None.

    If `classes` are given, columns with other names (`p_cat`) are ignored.
    """
    columns = getattr(frame, "columns", None)
    names = () if columns is None else tuple(map(str, columns))
    for prefix in ("prob_", "logit_"):
        if all(name.startswith(prefix) for name in names):
            names = tuple(name.removeprefix(prefix) for name in names)
    if not names or all(name.isdecimal() for name in names):
        return None
    return names if classes is None or set(names) == set(classes) else None


def _listed(names: Sequence[str]) -> str:
    return first_names([repr(name[:40]) for name in names])
