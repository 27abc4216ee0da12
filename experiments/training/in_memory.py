"""Rows to train on that are in memory: arrays, tensors, data frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import one_of, unused
from fedcal.core.classes import class_names, places_of, words_among
from fedcal.core.errors import InputError
from fedcal.core.scores import as_array, numbers
from fedcal.datasets import IDS
from fedcal.experiments.training.features import features_of
from fedcal.experiments.training.rows import LabelledRows, rows_of_arrays

NAME = "rows in memory"
"""What a configuration calls such data."""

_LABELS = ("labels", "y", "test_labels", "test_y")


def rows_in_memory(data: Any, feature_norm: float | None = None) -> LabelledRows:
    """Return what `read_labelled` would read from a file of these rows.

    `data` is `(rows, labels)`; a data frame with a column `label`, optional `client`, `subject`,
    `group`, and features in all others; or a mapping with the keys of a file, where `rows` and
    `test_rows` stand for `features`, if they are (n, d), and else for `x`. An array is whatever
    `as_array` takes. Labels may be names. InputError, of one line, for anything else.
    """
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        data = _of_frame(data)
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        data = dict(zip(("rows", "labels"), data, strict=True))
    if not isinstance(data, Mapping):
        raise InputError(
            "data must be a name, a path, (rows, labels), a data frame, or arrays as "
            f'{{"rows": (n, ...), "labels": (n,)}}; got {type(data).__name__}'
        )
    arrays = {str(key): as_array(str(key), value) for key, value in data.items()}
    for part in ("", "test_"):
        if (x := arrays.pop(f"{part}rows", None)) is not None:
            key = f"{part}features" if x.ndim == 2 else f"{part}x"
            unused(f"{part}rows are given", **{key: arrays.get(key)})
            arrays[key] = x
    _number_labels(arrays)
    if "features" not in arrays:
        unused("the rows are not features", feature_norm=feature_norm)
        if (known := arrays.pop("class_names", None)) is not None:
            names = class_names(known.ravel().tolist(), known.size)
            own = {k: y for k, y in arrays.items() if k in _LABELS}
            arrays |= {k: places_of(k, y, names, (len(y), len(names))) for k, y in own.items()}
        rows = rows_of_arrays({key.replace("labels", "y"): x for key, x in arrays.items()})
        rows = replace(rows, names=None if known is None else names)
        if rows.classes < 2:
            raise InputError("there is one class; at least 2 are needed")
        return rows
    for key in ("features", "test_features"):  # a file has whole numbers only to be small
        if key in arrays and arrays[key].dtype.kind in "iub" and "scale" not in arrays:
            arrays[key] = arrays[key].astype(np.float32)
    return features_of(arrays, feature_norm)


def _of_frame(frame: Any) -> dict[str, Any]:
    """Return the columns of a frame as arrays."""
    own = {str(name): name for name in frame.columns}
    one_of("column", "label", own)
    features = [name for name in own if name not in ("label", *IDS)]
    if not features:
        raise InputError("the data frame has no columns of features")
    columns = [numbers(name, frame[own[name]].to_numpy()) for name in features]
    ids = {name: frame[name].to_numpy() for name in IDS if name in own}
    return {"rows": np.column_stack(columns), "labels": frame["label"].to_numpy(), **ids}


def _number_labels(arrays: dict[str, NDArray[Any]]) -> None:
    """Put numbers in place of labels that are names: places in `class_names`, else as sorted."""
    labels = {key: arrays[key] for key in _LABELS if key in arrays}
    if words := words_among(list(labels.values())):
        arrays.setdefault("class_names", np.array(words))
    for key, y in labels.items():
        plain = y[:, 0] if y.shape[1:] == (1,) else y
        arrays[key] = plain.astype(np.int64) if plain.dtype == np.bool_ else plain
