"""What the commands of this room share: a regression, the file, and what is shown of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.atomic import whole_file
from fedcal.errors import FedcalError
from fedcal.metrics import summary
from fedcal.numerics import softmax
from fedcal.types import Floats, Integers

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


def make(
    name: str,
    description: str,
    inputs: Mapping[str, str],
    arrays_of: Callable[..., Arrays],
    arguments: Sequence[str] | None,
) -> None:
    """Write the file of a shipped set, and show what the model is worth.

    Parameters
    ----------
    name
        of the module in this room
    inputs
        options that name files or folders -> their help
    arrays_of
        the arrays of the file from the values of `inputs`, in their order
    arguments
        of the command line; None = `sys.argv`
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m fedcal.experiments.shipped.{name}", description=description.split("\n")[0]
    )
    for option, help in {**inputs, "out": "the .npz file to write"}.items():
        parser.add_argument(f"--{option}", type=Path, required=True, help=help)
    given = parser.parse_args(arguments)
    try:
        arrays = arrays_of(*(getattr(given, option) for option in inputs))
        with whole_file(given.out) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    except FedcalError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    for part in ("", "test_"):
        if f"{part}labels" in arrays:
            show(arrays, part)
    print(f"written to {given.out}: {given.out.stat().st_size:,} bytes")


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
