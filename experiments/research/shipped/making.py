"""What the commands of this package share: a regression, the file, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.numerics import Floats, Integers, softmax
from fedcal.experiments.research.command import run_module
from fedcal.metrics import summary
from fedcal.storage.atomic import whole_file

Arrays = dict[str, NDArray[Any]]


def logistic(x: Floats, y: Integers, ridge: float = 1.0, steps: int = 30) -> Floats:
    """Weights of a logistic regression, by Newton's method.

    Parameters
    ----------
    x
        (n, d), the first column 1
    y
        (n,) 0 or 1
    ridge
        of the squared weights but the first; 1 is scikit-learn's default. Without it a code that
        three training rows have gets a weight of 20.
    """
    w = np.zeros(x.shape[1])
    penalty = np.full(len(w), ridge)
    penalty[0] = 0.0
    for _ in range(steps):
        p = 1 / (1 + np.exp(-x @ w))
        gradient = x.T @ (y - p) - penalty * w
        w = w + np.linalg.solve((x.T * (p * (1 - p))) @ x + np.diag(penalty), gradient)
    return w


def probe(x: Floats, y: Integers, classes: int, ridge: float = 0.01) -> Callable[[Floats], Floats]:
    """Softmax regression on features, by L-BFGS and without privacy: rows -> their logits.

    Parameters
    ----------
    x, y
        (n, d) and (n,)
    ridge
        half of it times the squared weights but the intercepts is added to the sum of losses
    """
    from scipy.optimize import minimize

    target = np.eye(classes)[y]

    def logits_of(w: Floats, rows: Floats) -> Floats:
        weights = w.reshape(-1, classes)
        return np.asarray(rows @ weights[:-1] + weights[-1])

    def loss(w: Floats) -> tuple[float, Floats]:
        z = logits_of(w, x)
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        total = p.sum(axis=1, keepdims=True)
        value = np.log(total).sum() - (z * target).sum()
        p /= total
        p -= target
        penalty = ridge * w.reshape(-1, classes)
        penalty[-1] = 0
        gradient = np.concatenate([x.T @ p, p.sum(axis=0, keepdims=True)]) + penalty
        return float(value + 0.5 * (penalty[:-1] ** 2).sum() / ridge), gradient.ravel()

    start = np.zeros((x.shape[1] + 1) * classes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return lambda rows: logits_of(found, rows)


def with_probe(arrays: Arrays, classes: int) -> Arrays:
    """Return the test rows of a features file, with the logits of a probe of its training rows.

    Rows after a corruption stand beside the clean ones; which is theirs is their `client`.
    """
    scale = float(arrays["scale"])
    of = probe(arrays["features"] * scale, arrays["labels"].astype(np.int64), classes)
    keys = [k for k in arrays if k.startswith("test_") and arrays[k].ndim == 2]
    parts = {k: of(arrays[k] * scale) for k in keys}
    if "test_group" in arrays:
        named = {k: arrays[k] for k in ("test_group", "group_names", "group", "test_labels")}
        return {**named, "test_logits": parts["test_features"]}
    rows = len(arrays["test_labels"])
    return {
        "test_logits": np.concatenate(list(parts.values())),
        "test_labels": np.tile(arrays["test_labels"], len(parts)),
        "test_client": np.repeat(np.arange(len(parts)), rows),
        "client_names": np.array([key.removeprefix("test_") for key in parts]),
    }


def make(
    name: str,
    description: str,
    inputs: Mapping[str, str],
    arrays_of: Callable[..., Arrays],
    arguments: Sequence[str] | None,
    shown: Callable[[Arrays], Arrays] = lambda arrays: arrays,
) -> None:
    """Write the file of a shipped set, and show what the model is worth.

    Parameters
    ----------
    name
        of the module in this package
    inputs
        options that name files or folders -> their help
    arrays_of
        the arrays of the file from the values of `inputs`, in their order
    arguments
        of the command line; None = `sys.argv`
    shown
        scores, labels and clients or groups that are shown, from the arrays of the file
    """
    files = {**inputs, "out": "the .npz file to write"}
    options = {k: {"type": Path, "required": True, "help": text} for k, text in files.items()}

    def run(given: Any) -> None:
        arrays = arrays_of(*(getattr(given, option) for option in inputs))
        with whole_file(given.out) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        scores = shown(arrays)
        for part in ("", "test_"):
            if f"{part}labels" in scores:
                show(scores, part)
        print(f"written to {given.out}: {given.out.stat().st_size:,} bytes")

    run_module(f"shipped.{name}", description, options, run, arguments)


def show(arrays: Arrays, part: str) -> None:
    """Print what the scores of one part, "" or "test_", are worth by group or client, and at all.

    Confidence is the mean of the largest probability. Where there are two classes, share is that
    of class 1, and mean p that of its probability.
    """
    column = "group" if "group" in arrays else "client"
    probs = softmax(_logits(arrays, part))
    labels, owner = arrays[f"{part}labels"].astype(np.int64), arrays[f"{part}{column}"]
    two = probs.shape[1] == 2
    of_class_1 = "  share %  mean p %" if two else ""
    print(f"{part + column:<32}   rows{of_class_1}  accuracy %  confidence %  ECE %     NLL")
    for k, name in enumerate([*arrays[f"{column}_names"], "all"]):
        own = (owner == k) | (name == "all")
        found = summary(probs[own], labels[own])
        pair = f"  {100 * labels[own].mean():>7.1f}  {100 * probs[own, 1].mean():>8.1f}"
        print(
            f"{name:<32} {own.sum():>6}{pair if two else ''}  {100 * found['accuracy']:>10.1f}  "
            f"{100 * probs[own].max(axis=1).mean():>12.1f}  {100 * found['ece']:>5.1f}  "
            f"{found['nll']:>6.3f}"
        )


def _logits(arrays: Arrays, part: str) -> Floats:
    if f"{part}logits" in arrays:
        return arrays[f"{part}logits"].astype(np.float64)
    odds = arrays[f"{part}log_odds"].astype(np.float64)
    return np.stack([np.zeros(len(odds)), odds], axis=1)
