"""Rows from whatever Python users have."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal import datasets
from fedcal.core.classes import names_in
from fedcal.core.errors import InputError
from fedcal.datasets import Dataset
from fedcal.datasets.plausible_rows import check_rows
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of


def load_any(data: Any, class_names: str | None = None, positive: str | None = None) -> Dataset:
    """A `Dataset` from whatever `simulate` takes as `data`; InputError for anything else.

    Parameters
    ----------
    data
        see `simulate`
    class_names, positive
        as the options are: names by comma, and which of two classes is column 1
    """
    names = None if class_names is None else names_in(class_names)
    named: Any = {"classes": names, "positive": positive}
    if isinstance(data, Dataset):
        return data.in_order(names, positive)
    if isinstance(data, (str, Path)):
        return datasets.load(data, **named)
    if type(data).__module__.partition(".")[0] == "datasets":  # Hugging Face's, not imported here
        return datasets.from_huggingface(data, **named)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return datasets.from_frame(data, **named)
    if not isinstance(data, Mapping):
        raise InputError(
            "data must be a name, a path, a Dataset, a data frame, or arrays as "
            f'{{"logits": (n, c), "labels": (n,)}}; got {type(data).__name__}'
        )
    if "labels" not in data or not set(data) <= {*datasets.KEYS, "name"}:
        raise InputError(
            f"arrays need logits or probs, and labels; allowed are {', '.join(datasets.KEYS)}; "
            f"got {', '.join(map(str, data))}"
        )
    return datasets.from_arrays(**data, **named)


def name_of(data: Any, loaded: Dataset) -> str:
    """What a config calls the data: a file by its whole path, to be found from elsewhere."""
    if isinstance(data, (str, Path)) and not datasets.is_shipped(str(data)):
        return str(path_of(data).resolve())
    return loaded.name


def test_part(rows: Dataset, seed: int) -> Holdout:
    """The test rows of a data set that was split; InputError if it has none."""
    logits, probs, labels = rows.test_logits, rows.test_probs, rows.test_labels
    if logits is None or probs is None or labels is None:
        raise InputError(f"{rows.name} has no test rows")
    return Holdout(
        logits,
        probs,
        labels,
        seed,
        owner=rows.test_client,
        names=rows.client_names or (),
        group=rows.test_group,
        group_names=rows.group_names or (),
        class_names=rows.class_names,
        fit_rows=len(rows.labels),
    )


def warn_of_rows(rows: Holdout, where: str, stacklevel: int = 2) -> None:
    """Warn of test rows that are probably not what they are taken for (`check_rows`)."""
    for finding in check_rows(rows.logits, rows.labels, rows.class_names).findings:
        warnings.warn(f"{where}: {finding}", stacklevel=stacklevel + 1)


def rows_to_evaluate(data: Dataset) -> Dataset:
    """What an evaluation reads: the test part as the only rows, or all where there is none.

    Scores of a second model, and whom rows are about, are known of the other rows: where they are
    given, these are read.
    """
    more = data.other_scores is not None or data.subject is not None
    if data.test_scores is None or data.test_labels is None or more:
        if not data.labelled:
            raise InputError(f"{data.name}: rows without labels cannot be evaluated")
        return data
    return replace(
        data,
        scores=data.test_scores,
        labels=data.test_labels,
        client=data.test_client,
        client_names=None if data.test_client is None else data.client_names,
        group=data.test_group,
        group_names=None if data.test_group is None else data.group_names,
        test_scores=None,
        test_labels=None,
        test_client=None,
        test_group=None,
    )
