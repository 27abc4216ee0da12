"""Which column of scores a label that is a name belongs to: said, or guessed and then checked.

A wrong order is the worst of errors: every number that follows is calm and false. So names that
somebody gave are matched, and never sorted; and where nobody gave any, the order that is taken is
told beside what it makes of the rows, and refused where another one fits them better.
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
    """The names among labels, sorted; none where all labels are numbers, as text or not."""
    found = [as_array("labels", part) for part in parts if part is not None]
    words = {str(word) for part in found if part.dtype.kind == "U" for word in part.flat}
    return [] if all(word.isascii() and word.isdecimal() for word in words) else sorted(words)


def check_words(words: Sequence[str], names: Sequence[str]) -> None:
    """InputError for the first label that is no name of a column."""
    for word in words:
        if word not in names:
            lower = {name.lower(): name for name in names}
            near = get_close_matches(word.lower(), lower, 1, 0.6)
            hint = f"; did you mean {lower[near[0]]!r}?" if near else ""
            raise InputError(
                f"labels: {word[:80]!r} is none of the classes that the columns of scores are "
                f"named by ({_listed(names)}){hint}"
            )


def guessed(words: Sequence[str], columns: int, positive: str | None) -> tuple[str, ...]:
    """The order of columns that nobody has named: sorted, as scikit-learn's.

    Parameters
    ----------
    words
        the names among the labels, sorted
    positive
        the class whose probability a single column of scores was said to be

    Raises
    ------
    InputError
        There are more or fewer names than columns.
    """
    if len(words) != columns:
        raise InputError(
            f"labels: {len(words)} names ({_listed(words)}) for {columns} columns of scores; give "
            f"whole numbers in [0, {columns - 1}], or the columns the names of the classes (a "
            "file: prob_NAME or logit_NAME, or --class-names; arrays: classes=[...])"
        )
    if positive is not None and positive in words:
        return (*(word for word in words if word != positive), positive)
    return tuple(words)


def check_guess(names: Sequence[str], scores: Floats, labels: Integers) -> None:
    """Warn of an order that nobody gave, with what tells whether it is right.

    Parameters
    ----------
    names
        (c,) the order that was taken
    scores, labels
        (n, c) and (n,) rows that somebody may look at

    Raises
    ------
    InputError
        Another order fits the rows far better: then it must be said.
    """
    found = check_rows(scores, labels, names)
    common = names[int(np.bincount(labels, minlength=len(names)).argmax())]
    told = (
        f"right in {100 * found.accuracy:.1f} % of {len(labels):,} rows; always saying {common!r} "
        f"in {100 * found.guessing:.1f} %"
    )
    if found.order is not None:
        order = list(names)
        for j, column in enumerate(found.order):
            order[column] = names[j]
        raise InputError(
            f"labels are names, and nobody says which column of scores is whose; in sorted order "
            f"({_listed(names)}) the model is {told}. Say the order, by --class-names or arrays' "
            f"classes=[...]; {','.join(order)[:200]} fits these rows"
        )
    warnings.warn(
        f"labels are names, taken for the columns in sorted order ({_listed(names)}): {told}; say "
        "the order by --class-names (arrays: classes=[...])",
        stacklevel=5,
    )


def places(names: Sequence[str] | None, labels: Any) -> NDArray[Any]:
    """Labels with the number of its column in place of each name."""
    array = as_array("labels", labels)
    if array.dtype.kind != "U":
        return array
    known = {} if names is None else {name: j for j, name in enumerate(names)}
    found = [known[word] if word in known else int(word) for word in map(str, array.flat)]
    return np.array(found, np.int64).reshape(array.shape)


def own_names(frame: Any, classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of classes that the columns of a pandas frame of scores carry, or None.

    Where the classes were named, columns that are called otherwise (`p_cat`) say nothing.
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
