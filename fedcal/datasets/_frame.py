"""Data frames in memory, of pandas or Polars, with the columns of a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcal.datasets._columns import arguments, bad_score, find_columns, part_code
from fedcal.datasets._dataset import IDS, Dataset, from_arrays
from fedcal.errors import InputError
from fedcal.scores import numbers


def from_frame(frame: Any, *, name: str = "frame", labels_required: bool = True) -> Dataset:
    """Make a `Dataset` of a data frame.

    Parameters
    ----------
    frame : DataFrame
        Of pandas or Polars (whatever has `columns`, and `to_numpy` of each), with the columns that
        a file of `load` has: `label`, `logit_0 ..`, `prob_0 ..` or `score`, or a list in each row
        of `logits` or `probs`; optional `client`, `subject`, `split`.
    name : str
        What the set is called in reports.
    labels_required : bool
        False lets the labels be missing.

    Raises
    ------
    InputError
        One line: columns that are unknown, missing or do not go together, or what `from_arrays`
        refuses.
    """
    names = [str(column) for column in frame.columns]
    found = find_columns(names, labels_required, lists=True)

    def column(place: int | None) -> Any:
        return None if place is None else frame[frame.columns[place]].to_numpy()

    if found.listed:
        first = found.scores[0]
        scores = numbers(names[first], list(column(first)))
    else:
        scores = np.column_stack([numbers(names[p], column(p)) for p in found.scores])
    if found.kind == "score":
        problem = next(filter(None, map(bad_score, scores[:, 0])), None)
        if problem is not None:
            raise InputError(problem)
    split = column(found.split)
    codes = None if split is None else np.array([part_code(str(part)) for part in split], np.int64)
    ids = {key: column(getattr(found, key)) for key in IDS}
    whole = arguments(found, scores, column(found.label), ids, codes, labels_required)
    return from_arrays(**whole, name=name, labels_required=labels_required)
