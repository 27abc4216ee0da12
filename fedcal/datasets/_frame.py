"""Data frames in memory, of pandas or Polars, with the columns of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcal.core.scores import numbers
from fedcal.datasets._arrays import from_columns
from fedcal.datasets._columns import arguments, find_columns
from fedcal.datasets._dataset import Dataset


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
        a file of `load`: `label`, `logit_0 ..`, `prob_0 ..` or `score`, or a list in each row
        of `logits` or `probs`; optional `client`, `subject`, `group`, `split`, and a second
        model's scores under the same names after `other_`.
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
    chosen = find_columns([str(column) for column in frame.columns], labels_required, lists=True)
    arrays = {str(name): frame[name].to_numpy() for name in frame.columns}
    values = {name: arrays[name] for name in chosen.single}
    for model, scores in chosen.models.items():
        if scores.listed:
            (column,) = scores.names
            values[model] = numbers(column, list(arrays[column]))
        else:
            values[model] = np.column_stack([numbers(k, arrays[k]) for k in scores.names])
    if "split" in values:
        values["split"] = np.array([str(part) for part in values["split"]])
    columns = arguments(chosen, values, labels_required)
    return from_columns(columns, name, labels_required, classes, positive)
