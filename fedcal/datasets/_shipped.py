"""Shipped data sets and features: description, attribution and files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.scores import Kind
from fedcal.core.types import Floats
from fedcal.datasets._arrays import from_arrays
from fedcal.datasets._dataset import Dataset
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


@dataclass(frozen=True)
class Shipped:
    """Shipped data set.

    `rows` counts the fit part, `test_rows` the test part (0: half is held out by seed),
    `clients` the natural clients and `groups` the groups of rows (0: none). `author`, `year` and
    `licence` attribute the numbers; the licence texts are in the README.md beside this file and
    in LICENSE. `variants` are corruptions and severities of the same rows, which
    `NAME:CORRUPTION:SEVERITY` loads; `NAME` alone is `default`.
    """

    name: str
    files: tuple[str, ...]
    description: str
    input: Kind
    rows: int
    test_rows: int
    classes: int
    clients: int
    source: str
    author: str
    year: int
    licence: str
    variants: tuple[Variant, ...] = ()
    default: Variant | None = None
    groups: int = 0


@cache
def catalogue() -> tuple[Shipped, ...]:
    """Return the shipped data sets, the default set first."""
    return tuple(map(_entry, shipped_tables()["scores"]))


def _entry(table: Mapping[str, Any]) -> Shipped:
    """Return the data set of a table of `catalogue.toml`."""
    facts = {**table, "files": tuple(table["files"])}
    if "default" in facts:
        corruptions = facts.pop("corruptions")
        shifts = ((name, n) for n in facts.pop("severities") for name in corruptions)
        facts |= {"variants": (("none", 0), *shifts), "default": tuple(facts["default"])}
    return Shipped(**facts)


def shipped_names() -> list[str]:
    """Return the names of the shipped sets."""
    return [entry.name for entry in catalogue()]


def shifted(name: str = "mnist-shift") -> tuple[Variant, ...]:
    """Return corruptions and severities of a shipped set with variants; ("none", 0) is no shift.

    `load(f"{name}:{corruption}:{severity}")` reads one of them.

    Raises InputError if no shipped set of this name has variants.
    """
    variants = {entry.name: entry.variants for entry in catalogue() if entry.variants}
    return variants[one_of("data set with variants", name, variants)]


def is_shipped(name: str) -> bool:
    """Return whether `load` reads a name as a shipped set or a variant of one, not as a path."""
    return entry_of(name) is not None


def entry_of(name: str) -> Shipped | None:
    """Return the shipped set of a name, which is its own, or NAME:... if it has variants."""
    for entry in catalogue():
        if name == entry.name or (entry.variants and name.startswith(f"{entry.name}:")):
            return entry
    return None


def load_shipped(entry: Shipped, name: str) -> Dataset:
    """Read a shipped set, by its name or that of a variant."""
    arrays: dict[str, Any] = {}
    for file in entry.files:
        arrays |= read_npz(_HERE / file)
    if entry.default is not None:
        variant = entry.default if name == entry.name else parse(name, entry.name, entry.variants)
        arrays = {"logits": unpacked(arrays[key_of(variant)]), "labels": arrays["labels"]}
    if "log_odds" in arrays:
        arrays["probs"] = _probs_from_log_odds(arrays.pop("log_odds"))
    for column in ("client", "group"):  # numbers, and their names
        if (names := arrays.pop(f"{column}_names", None)) is not None:
            for key in (column, f"test_{column}"):
                if key in arrays:
                    arrays[key] = names[arrays[key]]
    return from_arrays(name=name, **arrays)


def _probs_from_log_odds(log_odds: NDArray[Any]) -> NDArray[np.float64]:
    """Return probabilities (n, 2) from log(p / (1-p)) of class 1, (n,); -inf is p = 0.

    Each tail keeps its precision.
    """
    x = log_odds.astype(np.float64)
    return np.stack([1 / (1 + np.exp(x)), 1 / (1 + np.exp(-x))], axis=1)


STEPS = 12
"""Steps of sqrt(depth) per unit: with 12 a file of 31 variants stays under 1 MiB."""

Variant = tuple[str, int]
"""Corruption and severity; ("none", 0) is the unchanged images."""


def packed(logits: ArrayLike) -> NDArray[np.uint8]:
    """Return logits as bytes, (n, c): sqrt(largest logit of the row - logit), in steps of 1/12.

    Values above 255 steps are cut. Confidence depends on the runners-up, so steps are fine near the
    top and coarse far below: depth 1 is stored to 1/12 nat, depth 25 to 5/12. Rounding keeps the
    row's order except for ties.

    """
    z = np.asarray(logits, np.float64)
    depth = z.max(axis=1, keepdims=True) - z
    code = np.minimum(np.rint(STEPS * np.sqrt(depth)), 255)
    return np.asarray(code, np.uint8)


def unpacked(code: NDArray[np.uint8]) -> Floats:
    """Return logits from `packed`, (n, c), with the largest of each row at 0."""
    return -((code.astype(np.float64) / STEPS) ** 2)


def key_of(variant: Variant) -> str:
    """Return the name of the variant's array in the file, such as `fog_5`."""
    return f"{variant[0]}_{variant[1]}"


def parse(text: str, name: str, variants: tuple[Variant, ...]) -> Variant:
    """Return the variant of a name `name:CORRUPTION:SEVERITY`, or raise InputError."""
    corruption, _, severity = text.removeprefix(f"{name}:").partition(":")
    for variant in variants:
        if (corruption, severity) == (variant[0], str(variant[1])):
            return variant
    corruptions = dict.fromkeys(c for c, _ in variants if c != "none")
    severities = sorted({s for c, s in variants if c != "none"})
    raise InputError(
        f"unknown data set {text[:200]!r}; allowed: {name}:none:0 and {name}:CORRUPTION:SEVERITY "
        f"with severity {' or '.join(map(str, severities))} and corruption {', '.join(corruptions)}"
    )
