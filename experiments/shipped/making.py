"""The commands of this package share a regression, and how a file is written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import FedcalError
from fedcal.core.numerics import Floats, Integers
from fedcal.run.training_data import LabelledRows, read_labelled
from fedcal.storage.atomic import atomic_file
from fedcal.storage.toml_files import read_toml

Arrays = dict[str, NDArray[Any]]

TABLES = read_toml(Path(__file__).with_name("uci.toml"))
"""Columns and sizes of UCI's files, as their descriptions have them."""


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


def labelled_images(train: Path, test: Path) -> tuple[LabelledRows, LabelledRows]:
    """Read the images to learn from and those to test on; `test` may be one file with both."""
    first, second = read_labelled(str(train)), read_labelled(str(test))
    return first, second.test or second


IMAGES = {"train": ".npz with x and y", "test": "the same of the test rows"}
"""Options that name the files of `labelled_images`."""


def make(description: str, inputs: Mapping[str, str], arrays_of: Callable[..., Arrays]) -> None:
    """Write the file of a shipped set as the command line asks; leave with fedcal's exit codes.

    Parameters
    ----------
    inputs
        options that name files or folders -> their help
    arrays_of
        the arrays of the file from the values of `inputs`, in their order
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for option, text in {**inputs, "out": "the .npz file to write"}.items():
        parser.add_argument(f"--{option}", type=Path, required=True, help=text)
    given = parser.parse_args()
    try:
        arrays = arrays_of(*(getattr(given, option) for option in inputs))
        with atomic_file(given.out) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    except FedcalError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"written to {given.out}: {given.out.stat().st_size:,} bytes")
