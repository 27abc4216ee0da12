"""A trained model's logits of a file's rows: what calibration begins with."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.numerics import softmax
from fedcal.core.types import Floats, Integers
from fedcal.datasets import feature_sets, read_feature_set
from fedcal.experiments.training.features import LabelledRows, features_of, named, read_labelled
from fedcal.metrics import summary
from fedcal.storage.atomic import path_of
from fedcal.storage.npz import read_npz
from fedcal.training.trained_model import TrainedModel

Part = tuple[Floats, Integers | None]
"""Logits (n, c) and labels (n,); None = the file has none."""


def logits_of_file(model: TrainedModel, data: str) -> tuple[Part, Part | None]:
    """Return a model's logits for the rows of a file that `fedcal train` reads.

    Raises InputError if the rows cannot be read, or are none that the model takes.

    Parameters
    ----------
    data
        path, or the name of shipped features; labels may be missing from a file of features

    Returns
    -------
    tuple[Part, Part or None]
        Of the rows, and of the source's own test rows.
    """
    rows, labelled = _read(model, data)
    with named(data):
        parts: list[Part] = []
        for one in (rows, rows.test):
            if one is None:
                continue
            if one.classes > model.classes:
                raise InputError(f"there are {one.classes} classes, the model has {model.classes}")
            parts.append((model.predict(one.x), one.y if labelled else None))
    return parts[0], (parts[1] if len(parts) > 1 else None)


def metrics_of(part: Part) -> dict[str, float]:
    """Metrics of the model's probabilities; none without labels."""
    logits, labels = part
    return {} if labels is None else summary(softmax(logits), labels)


def _read(model: TrainedModel, data: str) -> tuple[LabelledRows, bool]:
    """Read the rows, and return whether their labels are known."""
    path = path_of(data)
    if data in {entry.name for entry in feature_sets()}:
        arrays: dict[str, Any] = read_feature_set(data)
    elif path.suffix.lower() == ".npz" and path.is_file():
        with named(data):
            arrays = dict(read_npz(path))
    else:
        return read_labelled(data), True
    if "features" not in arrays:
        return read_labelled(data), True
    labelled = bool({"labels", "y"} & arrays.keys())
    with named(data):
        for prefix in ("", "test_"):
            if not labelled and f"{prefix}features" in arrays:
                arrays[f"{prefix}labels"] = np.zeros(len(arrays[f"{prefix}features"]), np.int64)
        arrays.setdefault("class_names", np.arange(model.classes).astype(np.str_))
        return features_of(arrays), labelled
