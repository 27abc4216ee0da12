"""Rows to train on and to test on: shipped features, and files of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError
from fedcal.core.numerics import Integers, Purpose, stream
from fedcal.datasets import feature_sets, read_feature_set
from fedcal.run.training_data import SHIFTED, labelled_rows
from fedcal.storage.npz import read_npz

IMAGES, TABLE = "mnist-features", "adult-features"
SHIPPED = (IMAGES, TABLE)

NORM = 1.0
"""To which longer rows of features are scaled: clip norms mean the same on all data then."""


@dataclass(frozen=True, eq=False)
class Task:
    """Labelled rows of features.

    Attributes
    ----------
    name
        in tables
    x, y
        (n, d) float32 and (n,) int64, to train on
    test_x, test_y
        (m, d) and (m,)
    classes
        number of classes
    shifted
        (corruption, severity) -> the test rows' features after it, (m, d)
    """

    name: str
    x: NDArray[np.float32] = field(repr=False)
    y: Integers = field(repr=False)
    test_x: NDArray[np.float32] = field(repr=False)
    test_y: Integers = field(repr=False)
    classes: int
    shifted: Mapping[tuple[str, int], NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> int:
        """Number of training rows."""
        return len(self.y)


@cache
def task(source: str) -> Task:
    """Return a task by the name of shipped features, or the path of a features file.

    Raises
    ------
    InputError
        No features, or none to test on.
    """
    shipped = source in {entry.name for entry in feature_sets()}
    arrays = read_feature_set(source) if shipped else read_npz(Path(source))
    if not {"features", "test_features"} <= arrays.keys():
        raise InputError(f"{source!r}: needs features with labels, and test_features with theirs")
    rows = labelled_rows(arrays, NORM)
    test = rows.test
    if test is None:
        raise InputError(f"{source!r}: has no test rows")
    name = source if shipped else Path(source).name.removesuffix(".npz")
    shifted = {
        (key[len("test_") : -2], int(key[-1])): labelled_rows(
            arrays | {"test_features": x}, NORM
        ).test
        for key, x in arrays.items()
        if SHIFTED.fullmatch(key)
    }
    after = {what: one.x for what, one in shifted.items() if one is not None}
    return Task(name, rows.x, rows.y, test.x, test.y, rows.classes, after)


def tasks(data: Sequence[str] | None, shipped: Sequence[str] = SHIPPED) -> list[Task]:
    """Return the tasks of `--data`, or the shipped ones.

    Raises
    ------
    InputError
        Also where two of them have the same name.
    """
    found = [task(source) for source in data or shipped]
    names = [t.name for t in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"data {twice[0]!r} is there twice")
    return found


def relabelled(y: Integers, classes: int, share: float, seed: int) -> Integers:
    """Labels of which each is drawn anew, uniformly over all classes, with a probability."""
    rng = stream(seed, Purpose.SPLIT, 0, f"label noise {share:g}")
    drawn = rng.integers(0, classes, len(y))
    return np.where(rng.random(len(y)) < share, drawn, y).astype(np.int64)
