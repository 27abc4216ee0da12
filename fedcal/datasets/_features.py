"""The features that come with fedcal: inputs and labels, for `fedcal train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedcal.checks import one_of
from fedcal.npz import read_npz

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class FeatureSet:
    """One shipped set of features, `features` numbers a row.

    `rows` counts the training rows, `test_rows` the test rows, and `groups` the groups of rows (0:
    none). `author`, `year` and `licence` attribute the numbers, as those of `Shipped`.
    """

    name: str
    files: tuple[str, ...]
    description: str
    rows: int
    test_rows: int
    features: int
    classes: int
    groups: int
    source: str
    author: str
    year: int
    licence: str


_FEATURES: tuple[FeatureSet, ...] = ()


def feature_sets() -> tuple[FeatureSet, ...]:
    """What is shipped to train on."""
    return _FEATURES


def read_feature_set(name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a shipped set of features.

    Raises
    ------
    InputError
        If there is none of this name.
    """
    entries = {entry.name: entry for entry in _FEATURES}
    arrays: dict[str, NDArray[Any]] = {}
    for file in entries[one_of("set of features", name, entries)].files:
        arrays |= read_npz(_HERE / file)
    return arrays
