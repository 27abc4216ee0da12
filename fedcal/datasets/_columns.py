"""Columns by name, for text and Arrow alike: which hold scores, labels, ids and parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.checks import one_of
from fedcal.datasets._dataset import IDS
from fedcal.errors import InputError
from fedcal.scores import RANGE_TOLERANCE
from fedcal.types import Floats, Integers

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
    """Places of the columns that are read.

    Attributes
    ----------
    names : all columns of the source
    kind : "logits", "probs", or "score", the probability of class 1 of two
    scores : places of the score columns, class 0 first
    listed : whether there is one score column, with a list in each cell
    label, client, subject, split : places, or None
    classes : names of the score columns (`prob_cat`, `prob_dog`), or None where they have numbers
    """

    names: list[str]
    kind: str
    scores: list[int]
    listed: bool
    label: int | None
    client: int | None
    subject: int | None
    split: int | None
    classes: tuple[str, ...] | None = None

    @property
    def used(self) -> list[int]:
        """Places of all columns that are read."""
        singles = (self.label, self.client, self.subject, self.split)
        return [*self.scores, *(place for place in singles if place is not None)]


def find_columns(
    names: Sequence[str], labels_required: bool, *, lists: bool = False, others: bool = False
) -> Columns:
    """Find the columns among `names`, in any order.

    Parameters
    ----------
    names : of all columns
    labels_required : whether `label` must be there
    lists : whether `logits` and `probs` may hold lists
    others : whether unknown columns are passed over; otherwise they are refused

    Raises
    ------
    InputError
        One line: columns that are unknown, missing, there twice or do not go together.
    """
    allowed = _ALLOWED_LISTS if lists else _ALLOWED
    listed = ("logits", "probs") if lists else ()
    found: dict[str, dict[int, int]] = {}
    single: dict[str, int] = {}
    called = None if others else _class_names(names)
    if called is not None:
        kind, classes = called
        numbers = {f"{kind}_{name}": f"{kind}_{j}" for j, name in enumerate(classes)}
        numbered = [numbers.get(name, name) for name in names]
        return replace(
            find_columns(numbered, labels_required, lists=lists), names=list(names), classes=classes
        )
    for place, name in enumerate(names):
        match = _SCORE.fullmatch(name)
        if match is not None:
            places = found.setdefault(match[1], {})
            if int(match[2]) in places:
                raise InputError(f"column {name!r} is there twice")
            places[int(match[2])] = place
        elif name in (*_SINGLE, "score", *listed):
            if name in single:
                raise InputError(f"column {name!r} is there twice")
            single[name] = place
        elif not others:
            hint = " (pandas: index=False)" if name in _INDEX else ""
            raise InputError(f"unknown column {name[:80]!r}; allowed: {allowed}{hint}")
    kinds = [*found, *(name for name in ("score", *listed) if name in single)]
    if len(kinds) != 1:
        problem = f"{' and '.join(kinds)} columns together"
        if not kinds:
            problem = f"no score columns among {_listed(names)}"
        raise InputError(f"{problem}; allowed: {allowed}")
    if labels_required and "label" not in single:
        raise InputError(f"column 'label' is missing; there are: {_listed(names)}")
    kind = kinds[0]
    if kind in single:
        scores = [single[kind]]
    else:
        places = found[kind]
        missing = next((j for j in range(len(places)) if j not in places), None)
        if missing is not None:
            raise InputError(f"column '{kind}_{missing}' is missing")
        scores = [places[j] for j in range(len(places))]
    return Columns(
        names=list(names),
        kind={"logit": "logits", "prob": "probs"}.get(kind, kind),
        scores=scores,
        listed=kind in listed,
        classes=None,
        **{name: single.get(name) for name in _SINGLE},
    )


def _class_names(names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The kind and the classes where all score columns have names of classes, else None."""
    found = [match for match in map(_NAMED.fullmatch, names) if match is not None]
    classes = tuple(dict.fromkeys(match[2] for match in found))
    one_kind = len({match[1] for match in found}) == 1
    if not one_kind or len(classes) < max(2, len(found)) or any(map(_SCORE.fullmatch, names)):
        return None
    return found[0][1], classes


def _listed(names: Sequence[str]) -> str:
    """The columns that are there, cut where they are many."""
    text = ", ".join(map(repr, names))
    return text if len(text) <= 200 else f"{text[:200]}..."


def bad_score(value: float) -> str | None:
    """What is wrong with a cell of the column `score`, or None."""
    if -RANGE_TOLERANCE <= value <= 1 + RANGE_TOLERANCE:
        return None
    return f"score must lie in [0, 1], got {value:g}"


def part_code(name: str) -> int:
    """The place of a part's name in `PARTS`, or InputError."""
    return PARTS.index(name if name in PARTS else one_of("split", name[:80], PARTS))


def fit_name(names: Sequence[str]) -> str:
    """The one name of a fit part among names of `PARTS`, or InputError."""
    fit = [name for name in names if name in FIT]
    if not fit:
        raise InputError(f"split: no fit part; one of {', '.join(FIT)} must be there")
    if len(fit) > 1:
        raise InputError(f"split: {' and '.join(fit)} together; keep the one to fit on, and {TEST}")
    return fit[0]


def arguments(
    columns: Columns,
    scores: Floats,
    labels: NDArray[Any] | None,
    ids: Mapping[str, NDArray[Any] | None],
    split: Integers | None,
    labels_required: bool,
) -> dict[str, Any]:
    """Columns as arguments for `from_arrays`.

    Parameters
    ----------
    columns : what they are
    scores : (n, c), or (n, 1) of the kind "score"
    labels : (n,), or None
    ids : each of `IDS`, (n,) or None
    split : (n,) places in `PARTS`, or None
    labels_required : False where rows are to be calibrated: without labels `split` is then
        passed over, and with labels the test part must come last, so that rows keep their order
    """
    kind = "logits" if columns.kind == "logits" else "probs"
    if columns.kind == "score":
        scores = np.concatenate([1 - scores, scores], axis=1)
    classes = {"classes": columns.classes}
    whole = {kind: scores, "labels": labels, **ids}
    if split is None or labels is None:
        return whole | classes
    fit_name([PARTS[code] for code in np.unique(split)])
    test = split == PARTS.index(TEST)
    if not test.any():
        return whole | classes
    if not labels_required and test[:-1][~test[1:]].any():
        raise InputError(
            f"split: rows of {TEST} stand before others, so that calibrated rows would change "
            f"their order; sort by split, or leave it out"
        )
    return {
        **{name: None if part is None else part[~test] for name, part in whole.items()},
        **classes,
        f"test_{kind}": scores[test],
        "test_labels": labels[test],
    }
