"""Scores of rows by a fitted model: of scikit-learn, or a `torch.nn.Module`.

A scikit-learn model names the class of each of its columns, and labels are matched to these
names. Neither package is imported: a caller with such a model has imported its package.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import FormError, InputError, blamed, needed, one_of, same
from fedcal.core.naming import class_names, listed
from fedcal.core.numerics import KINDS, Floats, Integers, Kind, logits_of
from fedcal.core.scores import as_array, check_scores, without_gradient
from fedcal.datasets._arrays import from_arrays
from fedcal.datasets._dataset import IDS, Dataset, by_name

BATCH = 256
"""Rows in a batch of a torch model."""

_TEST = ("test_rows", "test_labels", "test_client", "test_group")
_KEYS = ("rows", "labels", *IDS, *_TEST, "name")


def from_model(
    model: Any, data: Any, *, classes: Sequence[str] | None = None, positive: str | None = None
) -> Dataset:
    """Score rows by a fitted model and make a `Dataset` of them.

    Use rows that the model was not trained on: on training rows it is overconfident.

    Parameters
    ----------
    model
        a fitted classifier with `predict_proba` and `classes_`, whose probabilities are used, or
        a `torch.nn.Module`, whose outputs, or their `logits`, are logits, (rows, classes), or of a
        softmax head probabilities; one for each row is of class 1 of two. The latter is run in
        batches on the device of its parameters, in evaluation mode and without gradients; its
        previous mode is restored.
    data
        (rows, labels), or a mapping with the keys rows, labels, client, subject, group, test_rows,
        test_labels, test_client, test_group, name. Rows are the model's input, also a data frame;
        a mapping of arrays is passed to a torch model as keyword arguments.
    classes, positive
        see `from_arrays`

    Raises
    ------
    InputError
        One line: a model that is not fitted, fails or returns other shapes, a label that is not
        among its classes, or an error of `from_arrays`.
    """
    torch, name = sys.modules.get("torch"), type(model).__name__
    of_torch = torch is not None and isinstance(model, torch.nn.Module)
    own, names = (None, None) if of_torch else _classes(model)
    arrays = {"name": f"scores of {name}", **by_name(data, "rows", _KEYS)}
    for key in ("rows", "labels"):
        needed(key, arrays.get(key), "a model scores rows with labels")
    for part in ("", "test_"):
        if (rows := arrays.pop(f"{part}rows", None)) is not None:
            with blamed(f"the model {name}, on these rows,"):
                if of_torch:
                    kind, outputs = outputs_of(model, _batches(rows))
                    arrays[f"{part}{kind}"] = outputs
                else:
                    arrays[f"{part}probs"] = scores_of(model, without_gradient(rows), "probs")
        labels = arrays.get(f"{part}labels")
        if own is not None and labels is not None:
            arrays[f"{part}labels"] = columns_of(own, as_array("labels", labels), len(own))
    if own is None:
        return from_arrays(**arrays, classes=classes, positive=positive)
    return replace(from_arrays(**arrays), class_names=names).in_order(classes, positive)


def _classes(model: Any) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Return a fitted classifier's classes, and their names unless they number the columns."""
    why = f"a {type(model).__name__} without it is no fitted classifier, nor a torch.nn.Module"
    classes = np.asarray(needed("classes_", getattr(model, "classes_", None), why))
    numbered = classes.dtype.kind != "b" and np.array_equal(classes, np.arange(len(classes)))
    return classes, None if numbered else class_names(classes.tolist(), len(classes))


Columns: TypeAlias = "dict[Any, Any]"
"""Tensors of the rows of a batch: by the names of the model's parameters, or by place from 0."""


def outputs_of(model: Any, batches: Iterable[Columns]) -> tuple[Kind, Floats]:
    """Return a `torch.nn.Module`'s scores, (n, c), in evaluation mode and without gradients.

    Its inputs are copies on its own device, floats in its own precision. Scores are "probs" of a
    softmax or sigmoid head, else "logits": the model is asked with made-up rows, the same
    everywhere, so that no row of anybody's decides. Raises FormError if they are neither.
    """
    import torch

    modes = [(module, module.training) for module in model.modules()]
    held = chain(model.parameters(), model.buffers())
    like = next((x for x in held if x.is_floating_point()), torch.empty(0))
    parts, kind = list[Any](), "logits"
    model.eval()
    try:
        with torch.no_grad():
            for columns in batches:
                moved = {key: _moved_to(like, x) for key, x in columns.items()}
                if not parts and _are_probs(model, moved):
                    kind = "probs"
                parts.append(as_array("outputs", _outputs(model, moved)))
    finally:
        for module, mode in modes:
            module.training = mode
    outputs = np.concatenate(parts) if parts else np.empty((0, 2))
    if outputs.shape[1] == 1:  # of class 1
        outputs = np.hstack([1 - outputs if kind == "probs" else 0 * outputs, outputs])
    return ("probs" if kind == "probs" else "logits"), outputs


def _moved_to(like: Any, tensor: Any) -> Any:
    return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None, copy=True)


def _outputs(model: Any, columns: Columns) -> Any:
    """Return the model's outputs of n rows, (n, c); c = 1 stands for two classes."""
    size = len(next(iter(columns.values())))
    outputs = model(*columns.values()) if 0 in columns else model(**columns)
    named = isinstance(outputs, Mapping)
    outputs = outputs.get("logits") if named else getattr(outputs, "logits", outputs)
    shape = tuple(getattr(outputs, "shape", ()))
    if hasattr(outputs, "numel") and outputs.numel() == size:
        return outputs.reshape(size, 1)
    if len(shape) != 2 or shape[0] != size:
        what = f"{len(shape)} dimensions" if shape else f"type {type(outputs).__name__}"
        raise FormError(
            f"model: {type(model).__name__} returns outputs of {what}; they must be logits or "
            "probabilities, (rows, classes), or one for each row where there are two classes"
        )
    return outputs


def _are_probs(model: Any, columns: Columns) -> bool:
    """Return whether a model has a softmax or sigmoid head, which nothing takes out of [0, 1].

    Neither made-up rows of many sizes do, nor the last layer's parameters, a hundredfold.
    """
    import torch

    drawn, rows = torch.Generator().manual_seed(0), dict[Any, Any]()
    for key, x in columns.items():
        sizes = torch.logspace(-2, 1, 32).reshape(-1, *[1] * (x.ndim - 1))
        made_up = sizes * torch.randn(32, *x.shape[1:], generator=drawn)
        rows[key] = (made_up * x.is_floating_point()).to(x)
    last = [(x, x.clone()) for x in [*model.parameters()][-2:]]
    try:
        plain = _outputs(model, rows)
        for x, _ in last:
            x.mul_(100)
        outputs = torch.cat([plain, _outputs(model, rows)]).double()
    except Exception:  # noqa: BLE001  a model may refuse such rows
        return False
    finally:
        for x, own in last:
            x.copy_(own)
    complete = outputs.shape[1] == 1 or (abs(outputs.sum(1) - 1) < 1e-2).all()
    return bool(complete and ((outputs >= 0) & (outputs <= 1)).all() and outputs.any())


def _batches(rows: Any) -> Iterator[Columns]:
    """Yield rows as tensors."""
    import torch

    columns = dict(rows) if isinstance(rows, Mapping) else {0: rows}
    tensors: dict[Any, Any] = {
        key: x if isinstance(x, torch.Tensor) else torch.as_tensor(as_array(str(key), x))
        for key, x in columns.items()
    }
    count = {len(x) if x.ndim else 0 for x in tensors.values()}
    if len(count) != 1 or 0 in count:
        raise InputError("rows: no rows, or arrays of different length")
    for parts in zip(*(x.split(BATCH) for x in tensors.values()), strict=True):
        yield dict(zip(tensors, parts, strict=True))


def scores_of(estimator: Any, X: Any, input: Kind = "logits") -> Floats:
    """Return a fitted classifier's scores of rows, in the form of a calibrator's input.

    Parameters
    ----------
    estimator
        a fitted scikit-learn classifier (or a pipeline that ends in one)
    X
        rows, in the form of the estimator's input
    input
        "probs": `predict_proba`. "logits": `decision_function`, of which a single column d, for two
        classes, becomes (0, d), so that softmax gives sigmoid(d); if the estimator has none,
        log(max(p, 1e-12)) of `predict_proba`

    Returns
    -------
    Floats
        (n, c) in the order of `estimator.classes_`

    Raises
    ------
    InputError
        If the estimator has no such method, or does not return one column for each class (as
        one-against-one decision functions do not).
    """
    method = method_for(estimator, input)
    return in_columns(estimator, getattr(estimator, method)(X), method, input)


def method_for(estimator: Any, input: Kind) -> str:
    """Return the method that `scores_of` calls: "decision_function" or "predict_proba"."""
    one_of("input", input, KINDS)
    if input == "logits" and hasattr(estimator, "decision_function"):
        return "decision_function"
    has = getattr(estimator, "predict_proba", None)
    needed(f"predict_proba of {type(estimator).__name__}", has, f"what it says of rows is {input}")
    return "predict_proba"


def in_columns(estimator: Any, outputs: ArrayLike, method: str, input: Kind) -> Floats:
    """Return the output of the fitted `estimator`'s `method` in the form of `scores_of`."""
    classes, name = len(estimator.classes_), type(estimator).__name__
    scores = as_array(f"{name}.{method}", outputs).astype(np.float64)
    if method == "decision_function" and scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    same(f"classes, and so columns of scores, of {name}", scores.shape[1:], (classes,))
    if method == "predict_proba":
        scores = check_scores(f"{name}.predict_proba", "probs", scores, least=0)
        return scores if input == "probs" else logits_of("probs", scores)
    return scores


def columns_of(names: NDArray[Any], y: ArrayLike, columns: int, hint: str = "") -> Integers:
    """Return the column of each label, (n,), from the names of the columns, (columns,).

    Raises InputError, with the hint, for a label that is not among them.
    """
    place = {name: j for j, name in enumerate(names.ravel().tolist())}
    if names.ndim != 1 or len(place) != columns:
        raise InputError(f"classes must be {columns} different names, one for each column of X")
    labels = np.ravel(y).tolist()
    codes = [place.get(label, -1) for label in labels]
    if -1 in codes:
        row = codes.index(-1)
        known = listed(list(map(str, place)), most=10)
        raise InputError(f"label {labels[row]!r} at row {row} is not among classes ({known}){hint}")
    return np.array(codes, np.int64)
