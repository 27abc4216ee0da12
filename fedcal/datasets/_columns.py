"""Columns by name, for text, Arrow and frames alike: which hold scores, labels, ids and parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.checks import one_of
from fedcal.datasets._dataset import IDS
from fedcal.errors import InputError
from fedcal.scores import RANGE_TOLERANCE

FIT = ("train", "fit", "calibration", "validation")
"""What the fit part may be called in a column `split`, or as a split of Hugging Face's."""

TEST = "test"
PARTS = (TEST, *FIT)

_SCORE = re.compile(r"(logit|prob)_(0|[1-9][0-9]{0,8})")
_NAMED = re.compile(r"(logit|prob)_(.*[^0-9].*)")  # by the class instead of its number
_ALLOWED = "label, client, subject, split, logit_0.. or prob_0.. (two classes: score)"
_ALLOWED_LISTS = f"{_ALLOWED}, or a list in logits or probs"
_SINGLE = ("label", *IDS, "split")
_INDEX = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls its index in a file


@dataclass(frozen=True)
class Columns:
    """The columns that are read.

    Attributes
    ----------
    kind
        "logits", "probs", or "score", the probability of class 1 of two
    scores
        names of the score columns, class 0 first
    listed
        whether there is one score column, with a list in each cell
    single
        those of `label`, `client`, `subject` and `split` that are there
    classes
        names of the classes (of `prob_cat`, `prob_dog`), or None where they have numbers
    """

    kind: str
    scores: list[str]
    listed: bool
    single: list[str]
    classes: tuple[str, ...] | None = None

    @property
    def used(self) -> list[str]:
        """Names of all columns that are read."""
        return [*self.scores, *self.single]


def find_columns(
    names: Sequence[str], labels_required: bool, *, lists: bool = False, others: bool = False
) -> Columns:
    """Find the columns among `names`, in any order.

    Parameters
    ----------
    names
        of all columns
    labels_required
        whether `label` must be there
    lists
        whether `logits` and `probs` may hold lists
    others
        whether unknown columns are passed over; otherwise they are refused

    Raises
    ------
    InputError
        One line: columns that are unknown, missing, there twice or do not go together.
    """
    allowed = _ALLOWED_LISTS if lists else _ALLOWED
    whole = ("score", "logits", "probs") if lists else ("score",)  # a column with all scores
    numbers = {} if others else _numbers_of_classes(names)
    found: dict[str, dict[int, str]] = {}  # kind -> number of the class, or 0 -> name
    for name in names:
        match = _SCORE.fullmatch(numbers.get(name, name))
        if match is None and name not in (*_SINGLE, *whole):
            if others:
                continue
            hint = " (pandas: index=False)" if name in _INDEX else ""
            raise InputError(f"unknown column {name[:80]!r}; allowed: {allowed}{hint}")
        kind, number = (name, 0) if match is None else (match[1], int(match[2]))
        if number in found.setdefault(kind, {}):
            raise InputError(f"column {name!r} is there twice")
        found[kind][number] = name
    kinds = [kind for kind in ("logit", "prob", *whole) if kind in found]
    if len(kinds) != 1:
        together = f"{' and '.join(kinds)} columns together"
        problem = together if kinds else f"no score columns among {_listed(names)}"
        raise InputError(f"{problem}; allowed: {allowed}")
    if labels_required and "label" not in found:
        raise InputError(f"column 'label' is missing; there are: {_listed(names)}")
    scores = found[kinds[0]]
    missing = next((j for j in range(len(scores)) if j not in scores), None)
    if missing is not None:
        raise InputError(f"column '{kinds[0]}_{missing}' is missing")
    return Columns(
        kind={"logit": "logits", "prob": "probs"}.get(kinds[0], kinds[0]),
        scores=[scores[j] for j in range(len(scores))],
        listed=kinds[0] in ("logits", "probs"),
        single=[name for name in _SINGLE if name in found],
        classes=tuple(name.partition("_")[2] for name in numbers) or None,
    )


def _numbers_of_classes(names: Sequence[str]) -> dict[str, str]:
    """`prob_cat` -> `prob_0` and so on where all score columns have names of classes, else {}."""
    found = {name: match[1] for name in names if (match := _NAMED.fullmatch(name))}
    if len(set(found.values())) != 1 or len(found) < 2 or any(map(_SCORE.fullmatch, names)):
        return {}
    return {name: f"{kind}_{j}" for j, (name, kind) in enumerate(found.items())}


def _listed(names: Sequence[str]) -> str:
    """The columns that are there, cut where they are many."""
    text = ", ".join(map(repr, names))
    return text if len(text) <= 200 else f"{text[:200]}..."


def fit_name(names: Iterable[str]) -> str:
    """The one name of a fit part among names of `PARTS`, or InputError."""
    fit = [name for name in names if name in FIT]
    if not fit:
        raise InputError(f"split: no fit part; one of {', '.join(FIT)} must be there")
    if len(fit) > 1:
        raise InputError(f"split: {' and '.join(fit)} together; keep the one to fit on, and {TEST}")
    return fit[0]


def arguments(
    columns: Columns,
    values: Mapping[str, NDArray[Any]],
    labels_required: bool,
    row_name: Callable[[int], str] = "row {}".format,
) -> dict[str, Any]:
    """Columns as arguments for `from_arrays`.

    Parameters
    ----------
    columns
        what they are
    values
        "scores", (n, c) or (n, 1) of the kind "score", and all of `columns.single`, (n,)
    labels_required
        False where rows are to be calibrated: without labels `split` is then
        passed over, and with labels the test part must come last, so that rows keep their order
    row_name
        what a row, from 0, is called in messages
    """
    scores, labels, split = values["scores"], values.get("label"), values.get("split")
    kind = "logits" if columns.kind == "logits" else "probs"
    if columns.kind == "score":
        bad = ~((scores >= -RANGE_TOLERANCE) & (scores <= 1 + RANGE_TOLERANCE))  # nan, too
        if bad.any():
            row = int(np.argmax(bad))
            problem = f"score must lie in [0, 1], got {scores[row, 0]:g}"
            raise InputError(f"{row_name(row)}: {problem}")
        scores = np.concatenate([1 - scores, scores], axis=1)
    test = np.zeros(len(scores), np.bool_)
    if split is not None:
        unknown = np.flatnonzero(~np.isin(split, PARTS))
        if len(unknown):
            try:
                one_of("split", str(split[unknown[0]])[:80], PARTS)
            except InputError as error:
                raise InputError(f"{row_name(int(unknown[0]))}: {error}") from None
        if labels is not None:
            fit_name(np.unique(split).tolist())
            test = split == TEST
    whole = {kind: scores, "labels": labels, **{name: values.get(name) for name in IDS}}
    if labels is None or not test.any():
        return whole | {"classes": columns.classes}
    if not labels_required and test[:-1][~test[1:]].any():
        raise InputError(
            f"split: rows of {TEST} stand before others, so that calibrated rows would change "
            f"their order; sort by split, or leave it out"
        )
    return {
        **{name: None if part is None else part[~test] for name, part in whole.items()},
        f"test_{kind}": scores[test],
        "test_labels": labels[test],
        "classes": columns.classes,
    }
