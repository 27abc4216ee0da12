"""`load`: a shipped name or a path, and `from_frame`: a table in memory, to one data set.

Shipped data sets and features: description, attribution and files.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, check_kept, located, near, one_of, system_errors
from fedcal.core.numerics import Floats, Kind
from fedcal.core.scores import ids_of
from fedcal.datasets._arrays import from_arrays, from_columns
from fedcal.datasets._dataset import IDS, KEYS, Dataset, Given
from fedcal.datasets._tables import arguments, find_columns, read_csv, read_parquet, with_scores
from fedcal.storage.atomic import path_of
from fedcal.storage.npz import read_npz

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class FeatureSet:
    """Shipped set of features, with `features` numbers in a row.

    `rows` counts the training rows, `test_rows` the test rows, and `groups` the groups of rows (0:
    none). `author`, `year` and `licence` attribute the numbers; the licence texts are in the
    README.md beside this file and in LICENSE.
    """

    name: str
    files: tuple[str, ...]
    description: str
    rows: int
    test_rows: int
    classes: int
    source: str
    author: str
    year: int
    licence: str
    groups: int = 0
    features: int = 0


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
    return _arrays_of(entries[one_of("set of features", name, entries)])


def _arrays_of(entry: FeatureSet) -> dict[str, Any]:
    return {key: x for file in entry.files for key, x in read_npz(_HERE / file).items()}


@dataclass(frozen=True, kw_only=True)
class Shipped(FeatureSet):
    """Shipped data set of scores.

    `rows` counts the fit part, `test_rows` the test part (0: half is held out by seed), and
    `clients` the natural clients. `variants` are corruptions and severities of the same rows, which
    `NAME:CORRUPTION:SEVERITY` loads; `NAME` alone is `default`.
    """

    input: Kind
    clients: int
    variants: tuple[Variant, ...] = ()
    default: Variant | None = None


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
    arrays = _arrays_of(entry)
    if entry.default is not None:
        known = {f"{entry.name}:{kind}:{level}": (kind, level) for kind, level in entry.variants}
        variant = entry.default
        if name != entry.name:
            variant = known[one_of("data set", name[:200], known, "fedcal.datasets.shifted")]
        arrays = {"logits": unpacked(arrays[key_of(variant)]), "labels": arrays["labels"]}
    if "log_odds" in arrays:
        x = arrays.pop("log_odds").astype(np.float64)  # -inf is p = 0; each tail keeps its digits
        arrays["probs"] = np.stack([1 / (1 + np.exp(x)), 1 / (1 + np.exp(-x))], axis=1)
    for column in ("client", "group"):  # numbers, and their names
        if (names := arrays.pop(f"{column}_names", None)) is not None:
            for key in (column, f"test_{column}"):
                if key in arrays:
                    arrays[key] = names[arrays[key]]
    return from_arrays(name=name, **arrays)


STEPS = 12
"""Steps of sqrt(depth) per unit: with 12 a file of 31 variants stays under 1 MiB."""

Variant = tuple[str, int]
"""Corruption and severity; ("none", 0) is the unchanged images."""


def unpacked(code: NDArray[np.uint8]) -> Floats:
    """Return logits from bytes, (n, c): the largest is 0, steps are of sqrt(largest - logit)."""
    return -((code.astype(np.float64) / STEPS) ** 2)


def key_of(variant: Variant) -> str:
    """Return the name of the variant's array in the file, such as `fog_5`."""
    return f"{variant[0]}_{variant[1]}"


def load(
    name_or_path: str | Path,
    *,
    labels_required: bool = True,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
) -> Dataset:
    """Read a shipped data set by name, or a file.

    Parameters
    ----------
    name_or_path
        A shipped name (see `catalogue`; it wins over a file of that name), one of its variants
        as NAME:CORRUPTION:SEVERITY (see `shifted`), or the path of

        * `.npz` with `logits` or `probs` (n, c), `labels` (n,), optional `client`, `subject` and
          `group` (n,), a second model's `other_logits` or `other_probs` (n, c), and `test_logits`
          or `test_probs` (m, c), `test_labels`, `test_client` and `test_group` (m,), and
          `class_names` (c,), of the columns of scores;
        * `.csv` with columns `label`, optional `client`, `subject` and `group`, and
          `logit_0..`, `prob_0..` or, for two classes, `score`: the probability of class 1; of a
          second model `other_logit_0..`, `other_prob_0..` or `other_score`;
        * `.parquet` (needs pyarrow) with the same columns.

        A column `split` in all but `.npz` may separate the test part (`test`) from the fit part
        (one of `train`, `fit`, `calibration`, `validation`). Test rows keep their clients if all
        of these own rows of the fit part.
    labels_required
        False lets the labels be missing (`Dataset.labelled` is then False).
    classes, positive
        (c,) names of the classes, and which of two is column 1: see `from_arrays`.

    Raises
    ------
    InputError
        If the file or its content is invalid, in one line that begins with the path; see
        `from_arrays` for the conditions on arrays.
    """
    text = str(name_or_path)
    if (entry := entry_of(text)) is not None:
        return load_shipped(entry, text).in_order(classes, positive)
    path = path_of(name_or_path)
    shown = repr(text if len(text) <= 200 else "..." + text[-200:])
    suffix = next((end for end in _READERS if path.name.lower().endswith(end)), None)
    if suffix is None:
        check_kept(f"reading {''.join(path.suffixes[-2:]).lower()}")
        check_kept(f"reading {path.suffix.lower()}")
        meant = near(text.partition(":")[0], [e.name for e in catalogue()], "fedcal datasets")
        problem = f"unknown data set; {meant}; or the path of a {_FILES} file"
        if text in {entry.name for entry in feature_sets()}:
            problem = f"holds features, not scores; train on it: fedcal train --data {text}"
        elif os.path.exists(path):
            problem = f"cannot be read as data; give the path of a {_FILES} file"
        raise InputError(f"{shown}: {problem}")
    order = {"labels_required": labels_required, "classes": classes, "positive": positive}
    with located(shown), system_errors("cannot be read"):  # a long name, a closed folder
        if not path.is_file():
            raise InputError("is not a file" if path.exists() else "no such file")
        return from_columns(_READERS[suffix](path, labels_required), name=path.name, **order)


def _read_npz(path: Path, labels_required: bool) -> dict[str, Any]:
    """Return arguments for `from_arrays` from an `.npz` file."""
    arrays: dict[str, Any] = read_npz(path)
    for key in arrays:
        one_of("key", key[:80], KEYS)
    columns: dict[str, Any] = {"labels": None} | arrays
    if not labels_required:
        tested = arrays.keys() & {"test_logits", "test_probs"}
        ids = {k: [k, f"test_{k}"] if tested else [k] for k in IDS}
        columns["given"] = Given(
            {
                name: np.concatenate([np.ravel(ids_of(key, arrays[key])) for key in keys])
                for name, keys in ids.items()
                if arrays.keys() >= {*keys}
            }
        )
    return columns


_READERS = {".npz": _read_npz, ".csv": read_csv, ".parquet": read_parquet}
_FILES = ", ".join(_READERS)


def from_frame(
    frame: Any,
    *,
    name: str = "frame",
    labels_required: bool = True,
    classes: Sequence[str] | None = None,
    positive: str | None = None,
) -> Dataset:
    """Make a `Dataset` of a data frame.

    Parameters
    ----------
    frame : DataFrame
        Of pandas or Polars (any object with `columns`, and `to_numpy` of each), with the columns of
        a file of `load`: `label`, `logit_0 ..`, `prob_0 ..` or `score`; optional `client`,
        `subject`, `group`, `split`, and a second model's scores under the same names after
        `other_`.
    name : str
        Name of the set in reports.
    labels_required : bool
        False lets the labels be missing.
    classes, positive : optional
        Names of the classes, and which of two is column 1: see `from_arrays`.

    Raises
    ------
    InputError
        One line: columns that are unknown, missing or incompatible, or an error of `from_arrays`.
    """
    chosen = find_columns([str(column) for column in frame.columns], labels_required)
    values = with_scores(chosen, {str(name): frame[name].to_numpy() for name in frame.columns})
    if "split" in values:
        values["split"] = np.array([str(part) for part in values["split"]])
    order = {"labels_required": labels_required, "classes": classes, "positive": positive}
    return from_columns(arguments(chosen, values, labels_required), name=name, **order)
