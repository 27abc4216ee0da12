"""Between classifiers and calibrators: scores in one form, labels as columns of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.scores import KINDS, Kind, check_scores, logits_of
from fedcal.types import Floats, Integers


def scores_of(estimator: Any, X: Any, input: Kind = "logits") -> Floats:
    """What a fitted classifier tells about rows, in the form that a calibrator takes.

    Parameters
    ----------
    estimator : a fitted scikit-learn classifier (or a pipeline that ends in one)
    X : rows, as the estimator takes them
    input : "probs": `predict_proba`. "logits": `decision_function`, where that of two classes,
        a single column d, becomes (0, d), so that softmax gives sigmoid(d); without one
        log(max(p, 1e-12)) of `predict_proba`

    Returns
    -------
    (n, c) in the order of `estimator.classes_`

    Raises
    ------
    InputError
        The estimator has no such method, or does not give one column for each class (as
        one-against-one decision functions do not).
    """
    method = method_for(estimator, input)
    return in_columns(estimator, getattr(estimator, method)(X), method, input)


def method_for(estimator: Any, input: Kind) -> str:
    """The method that `scores_of` asks: "decision_function" or "predict_proba"."""
    one_of("input", input, KINDS)
    if input == "logits" and hasattr(estimator, "decision_function"):
        return "decision_function"
    if hasattr(estimator, "predict_proba"):
        return "predict_proba"
    needed = "predict_proba" if input == "probs" else "decision_function or predict_proba"
    raise InputError(f"{type(estimator).__name__} has no {needed}")


def in_columns(estimator: Any, told: ArrayLike, method: str, input: Kind) -> Floats:
    """What the fitted `estimator`'s `method` told, as `scores_of` returns it."""
    scores, name = np.asarray(told, np.float64), type(estimator).__name__
    if method == "decision_function" and scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    classes = len(estimator.classes_)
    if scores.ndim != 2 or scores.shape[1] != classes:
        raise InputError(f"{name} has {classes} classes, but its scores have shape {scores.shape}")
    if method == "predict_proba":
        scores = check_scores(f"{name}.predict_proba", "probs", scores, least=0)
        return scores if input == "probs" else logits_of("probs", scores)
    return scores


def likeliest(classes: NDArray[Any], probs: Floats) -> NDArray[Any]:
    """The class with the largest probability of each row, (n,)."""
    return np.asarray(classes[probs.argmax(axis=1)])


def columns_of(names: NDArray[Any], y: ArrayLike, columns: int) -> Integers:
    """The column of each label, (n,), by the names of the columns, (columns,)."""
    place = {name: j for j, name in enumerate(names.ravel().tolist())}
    if names.ndim != 1 or len(place) != columns:
        raise InputError(f"classes must be {columns} different names, one for each column of X")
    labels = np.asarray(y).tolist()
    found = [place.get(label, -1) for label in labels]
    if -1 in found:
        row = found.index(-1)
        raise InputError(f"label {labels[row]!r} at row {row} is not among classes")
    return np.array(found, np.int64)
