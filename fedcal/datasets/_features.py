"""The features that come with fedcal: inputs and labels, for `fedcal train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedcal.core.checks import one_of
from fedcal.storage.npz import read_npz

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


_FEATURES = (
    FeatureSet(
        name="adult-features",
        files=("adult-features.npz",),
        description="census data but sex and race, by public ranges and codes: who earns more than "
        "50,000 dollars; sex and race are the group of a row",
        rows=32561,
        test_rows=16281,
        features=84,
        classes=2,
        groups=10,
        source="python -m fedcal.experiments.research.shipped.adult_features",
        author="the fedcal authors; Adult: Barry Becker and Ronny Kohavi",
        year=2026,
        licence="CC-BY-4.0",
    ),
    FeatureSet(
        name="mnist-features",
        files=("mnist-features.npz",),
        description="what random filters see of MNIST images; test rows also after each of 15 "
        "corruptions of severity 3",
        rows=10000,
        test_rows=2000,
        features=256,
        classes=10,
        groups=0,
        source="python -m fedcal.experiments.research.shipped.mnist_features",
        author="the fedcal authors; MNIST: Yann LeCun, Corinna Cortes and Christopher J.C. Burges",
        year=2026,
        licence="Apache-2.0",
    ),
)


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
