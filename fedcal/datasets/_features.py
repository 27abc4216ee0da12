"""Shipped features: inputs and labels, for `fedcal train`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedcal.core.checks import one_of
from fedcal.storage.npz import read_npz

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class FeatureSet:
    """Shipped set of features, with `features` numbers in a row.

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


@cache
def shipped_tables() -> dict[str, list[dict[str, Any]]]:
    """Return the tables of `catalogue.toml`: `scores` and `features`."""
    return tomllib.loads((_HERE / "catalogue.toml").read_text("utf-8"))


@cache
def feature_sets() -> tuple[FeatureSet, ...]:
    """Return the shipped sets of features, for training."""
    tables = shipped_tables()["features"]
    return tuple(FeatureSet(**table | {"files": tuple(table["files"])}) for table in tables)


def read_feature_set(name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a shipped set of features.

    Raises InputError if there is no set of this name.
    """
    entries = {entry.name: entry for entry in feature_sets()}
    arrays: dict[str, NDArray[Any]] = {}
    for file in entries[one_of("set of features", name, entries)].files:
        arrays |= read_npz(_HERE / file)
    return arrays
