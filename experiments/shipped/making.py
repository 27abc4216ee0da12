"""The commands of this package share a regression, and how a file is written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import FedcalError, InputError
from fedcal.core.numerics import Floats, Integers
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


def make(
    name: str,
    description: str,
    inputs: Mapping[str, str],
    arrays_of: Callable[..., Arrays],
    arguments: Sequence[str] | None,
) -> None:
    """Parse the command line of a module and write the file of a shipped set.

    Parameters
    ----------
    name
        of the module in `experiments`
    inputs
        options that name files or folders -> their help
    arrays_of
        the arrays of the file from the values of `inputs`, in their order
    arguments
        of the command line; None = `sys.argv`. The process leaves with `fedcal`'s exit codes where
        something is wrong
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}",
        description=description.splitlines()[0],
    )
    for option, text in {**inputs, "out": "the .npz file to write"}.items():
        parser.add_argument(f"--{option}", type=Path, required=True, help=text)
    given = parser.parse_args(arguments)
    try:
        if given.out.suffix != ".npz" or not given.out.absolute().parent.is_dir():
            raise InputError(f"--out {given.out} must end in .npz, and its folder must exist")
        arrays = arrays_of(*(getattr(given, option) for option in inputs))
        with whole_file(given.out) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    except FedcalError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"written to {given.out}: {given.out.stat().st_size:,} bytes")
