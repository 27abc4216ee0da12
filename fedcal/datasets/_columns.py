"""Columns of scores, labels, ids and parts by name, for text, Parquet and frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import one_of
from fedcal.core.classes import ids_of
from fedcal.core.errors import InputError
from fedcal.core.scores import MOST_CLASSES, RANGE_TOLERANCE, percent_hint
from fedcal.datasets._dataset import IDS, Given

FIT = ("train", "fit", "calibration", "validation")
"""Names of the fit part in a column `split`."""

TEST = "test"
PARTS = (TEST, *FIT)

_KINDS = ("logit", "prob", "score", "logits", "probs")
_SCORE = re.compile(r"(logit|prob)_(0|[1-9][0-9]{0,8})")
_NAMED = re.compile(r"(logit|prob)_(.*[^0-9].*)")  # named by the class instead of its number
_OTHER = "other_"  # before the names of a second model's scores
_ALLOWED = (
    "label, client, subject, group, split, logit_0.. or prob_0.. (two classes: score), "
    "of a second model other_logit_0.., other_prob_0.. or other_score"
)
_ALLOWED_LISTS = f"{_ALLOWED}; or a list in logits or probs, other_logits or other_probs"
_SINGLE = ("label", *IDS, "split")
_SUBJECTS = ("patient", "customer", "person")
_INDEX = ("", "Unnamed: 0", "__index_level_0__")  # names of a pandas index in a file


@dataclass(frozen=True)
class Scores:
    """Columns of one model's scores.

    Attributes
    ----------
    kind
        "logits", "probs", or "score", the probability of class 1 of two
    names
        of the columns, class 0 first
    listed
        whether there is one column, with a list in each cell
    """

    kind: str
    names: list[str]
    listed: bool


@dataclass(frozen=True)
class Columns:
    """Columns in use.

    Attributes
    ----------
    models
        "scores" and, if there is a second model, "other" -> their columns
    single
        those of `label`, `client`, `subject`, `group` and `split` that exist
    classes
        names of the classes (of `prob_cat`, `prob_dog`), or None if they have numbers
    """

    models: dict[str, Scores]
    single: list[str]
    classes: tuple[str, ...] | None = None

    @property
    def used(self) -> list[str]:
        """Names of all columns in use."""
        scores = [name for model in self.models.values() for name in model.names]
        return [*scores, *self.single]


def find_columns(names: Sequence[str], labels_required: bool, *, lists: bool = False) -> Columns:
    """Find the columns among `names`, in any order.

    Parameters
    ----------
    names
        of all columns
    labels_required
        whether `label` must exist
    lists
        whether `logits` and `probs` may hold lists

    Raises
    ------
    InputError
        One line: columns that are unknown, missing, duplicate or incompatible.
    """
    if len(names) > MOST_CLASSES:
        raise InputError(f"has {len(names):,} columns; at most {MOST_CLASSES:,} are read")
    allowed = _ALLOWED_LISTS if lists else _ALLOWED
    whole = ("score", "logits", "probs") if lists else ("score",)  # a column with all scores
    numbers = _numbers_of_classes(names)
    classes = [name.partition("_")[2] for name in numbers]
    for kind in ("logit", "prob"):  # the second model may have another kind of scores
        numbers |= {f"{_OTHER}{kind}_{k}": f"{_OTHER}{kind}_{j}" for j, k in enumerate(classes)}
    by_kind: dict[str, dict[str, dict[int, str]]] = {"": {}, _OTHER: {}}  # model -> kind -> class
    single = []
    for name in names:
        if name in single:
            raise InputError(f"column {name!r} appears twice")
        if name in _SINGLE:
            single.append(name)
            continue
        model = _OTHER if name.startswith(_OTHER) else ""
        plain = numbers.get(name, name).removeprefix(model)
        match = _SCORE.fullmatch(plain)
        if match is None and plain not in whole:
            hint = " (pandas: index=False)" if name in _INDEX else ""
            raise InputError(f"unknown column {name[:80]!r}; allowed: {allowed}{hint}")
        kind, number = (plain, 0) if match is None else (match[1], int(match[2]))
        if number in by_kind[model].setdefault(kind, {}):
            raise InputError(f"column {name!r} appears twice")
        by_kind[model][kind][number] = name
    if not by_kind[""]:
        raise InputError(f"no score columns among {_listed(names)}; allowed: {allowed}")
    if labels_required and "label" not in single:
        raise InputError(f"column 'label' is missing; there are: {_listed(names)}")
    models = {"scores": _scores("", by_kind[""], allowed)}
    if by_kind[_OTHER]:
        models["other"] = _scores(_OTHER, by_kind[_OTHER], allowed)
    ordered = [name for name in _SINGLE if name in single]
    return Columns(models, ordered, tuple(classes) or None)


def study_columns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return all column names as in `find_columns`, and the names of the unknown columns.

    A column `patient`, `customer` or `person` is `subject` if `subject` is missing; case is
    ignored.
    """
    own = (*_SINGLE, *_SUBJECTS, "score")
    names = [n.lower() if n.lower() in own and n.lower() not in names else n for n in names]
    stands = next((name for name in _SUBJECTS if name in names), None)
    _, subject, _ = IDS
    if stands is not None and subject not in names:
        names = [subject if name == stands else name for name in names]

    def is_known(name: str) -> bool:
        plain = name.removeprefix(_OTHER)
        return name in _SINGLE or plain == "score" or plain.startswith(("logit_", "prob_"))

    return list(names), [name for name in names if not is_known(name)]


def _scores(model: str, by_kind: Mapping[str, Mapping[int, str]], allowed: str) -> Scores:
    """Return the columns of one model, with names after `model`, from kind -> class -> name."""
    kind, *more = [f"{model}{kind}" for kind in _KINDS if kind in by_kind]
    if more:
        raise InputError(f"{kind} and {' and '.join(more)} columns together; allowed: {allowed}")
    kind = kind.removeprefix(model)
    names = by_kind[kind]
    missing = next((j for j in range(len(names)) if j not in names), None)
    if missing is not None:
        raise InputError(f"column '{model}{kind}_{missing}' is missing")
    return Scores(
        kind={"logit": "logits", "prob": "probs"}.get(kind, kind),
        names=[names[j] for j in range(len(names))],
        listed=kind in ("logits", "probs"),
    )


def _numbers_of_classes(names: Sequence[str]) -> dict[str, str]:
    """Return `prob_cat` -> `prob_0` and so on if all score columns have class names, else {}."""
    kinds = {name: match[1] for name in names if (match := _NAMED.fullmatch(name))}
    if len(set(kinds.values())) != 1 or len(kinds) < 2 or any(map(_SCORE.fullmatch, names)):
        return {}
    return {name: f"{kind}_{j}" for j, (name, kind) in enumerate(kinds.items())}


def _listed(names: Sequence[str]) -> str:
    """Return the existing columns as text, truncated if they are many."""
    text = ", ".join(map(repr, names))
    return text if len(text) <= 200 else f"{text[:200]}..."


def fit_name(names: Iterable[str]) -> str:
    """Return the single name of a fit part among names of `PARTS`, or raise InputError."""
    fit = [name for name in names if name in FIT]
    if not fit:
        raise InputError(f"split: no fit part; one of {', '.join(FIT)} is needed")
    if len(fit) > 1:
        raise InputError(
            f"split: {' and '.join(fit)} together; keep only the part to fit on, and {TEST}"
        )
    return fit[0]


def known_clients(fit: NDArray[Any] | None, test: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return the clients of the test rows, or None if one of them owns no row of the fit part.

    A user may hold out complete clients for the test part; these have no number among the clients
    of the fit part.
    """
    if fit is None or test is None or not np.isin(test, fit).all():
        return None
    return test


def arguments(
    columns: Columns,
    values: Mapping[str, NDArray[Any]],
    labels_required: bool,
    row_name: Callable[[int], str] = "row {}".format,
) -> dict[str, Any]:
    """Return columns as arguments for `from_arrays`.

    Parameters
    ----------
    columns
        columns in use
    values
        all of `columns.models`, (n, c) or (n, 1) for the kind "score", and all of `columns.single`,
        (n,)
    labels_required
        False if rows are to be calibrated and returned: without labels `split` is then ignored, and
        `given` holds the order of the source
    row_name
        function from a row, from 0, to its name in messages
    """
    values = {k: ids_of(k, v, row_name) if k in IDS else v for k, v in values.items()}
    labels, split = values.get("label"), values.get("split")
    kind, scores = _declared(columns, values, "scores", row_name)
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
    if "other" in columns.models:
        other, other_scores = _declared(columns, values, "other", row_name)
        whole[f"{_OTHER}{other}"] = other_scores
    known: dict[str, Any] = {"class_names": columns.classes}
    if not labels_required:
        ids = {name: values[name] for name in IDS if name in values}
        known["given"] = Given(ids, np.argsort(test, kind="stable") if test.any() else None)
    if labels is None or not test.any():
        return whole | known
    fit, held_out = (
        {name: None if column is None else column[part] for name, column in whole.items()}
        for part in (~test, test)
    )
    return {
        **fit,
        f"test_{kind}": held_out[kind],
        "test_labels": held_out["labels"],
        "test_client": known_clients(fit["client"], held_out["client"]),
        "test_group": held_out["group"],
        **known,
    }


def _declared(
    columns: Columns, values: Mapping[str, NDArray[Any]], model: str, row_name: Callable[[int], str]
) -> tuple[str, NDArray[Any]]:
    """Return the kind of one model's scores, "logits" or "probs", and the scores, (n, c)."""
    own, scores = columns.models[model], values[model]
    if own.kind != "score":
        return own.kind, scores
    bad = ~((scores >= -RANGE_TOLERANCE) & (scores <= 1 + RANGE_TOLERANCE))  # nan, too
    if bad.any():
        row = int(np.argmax(bad))
        hint = percent_hint(float(scores.min()), float(scores.max()))
        problem = f"{own.names[0]} must lie in [0, 1], got {scores[row, 0]:g}{hint}"
        raise InputError(f"{row_name(row)}: {problem}")
    return "probs", scores
