"""The rows of one site, as it gives them."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedcal import datasets
from fedcal.classes import class_names
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.shards import Shards

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def read_rows(data: str, names: Sequence[str] | None) -> Dataset:
    """The rows of one site, from a file or from a function of its own.

    Parameters
    ----------
    data
        a file as `fedcal simulate` takes it, or module:function, found from the working folder
        on, which returns logits (n, c) and labels (n,), or a mapping with the keys of a file
    names
        of the classes, for labels that are names

    Raises
    ------
    InputError
        If they cannot be had, or belong to several clients.
    """
    is_function = _FUNCTION.fullmatch(data) and not Path(data).exists()
    try:
        with warnings.catch_warnings():
            # in sorted order they may be other columns than at another site
            warnings.filterwarnings("error", "labels are names")
            rows = _called(data, names) if is_function else datasets.load(data, classes=names)
    except UserWarning:
        raise InputError(
            f"the labels of {data} are names: give --class-names, in the order of the columns"
        ) from None
    if rows.client_names is not None and len(rows.client_names) > 1:
        raise InputError(
            f"{data} has a column client with {len(rows.client_names)} clients; a site is one "
            "client: give each site a file of its own rows"
        )
    return rows


def _called(data: str, names: Sequence[str] | None) -> Dataset:
    module, _, function = data.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module), function)()
    except Exception as e:  # noqa: BLE001  it is the site's own code
        raise InputError(f"--data {data} failed: {type(e).__name__}: {e}") from None
    finally:
        sys.path.remove(os.getcwd())
    if isinstance(made, tuple) and len(made) == 2:
        made = {"logits": made[0], "labels": made[1]}
    if not isinstance(made, Mapping) or not {"labels"} <= set(made) <= set(datasets.KEYS):
        raise InputError(
            f"--data {data} must return (logits, labels), or a mapping with keys among "
            f"{', '.join(datasets.KEYS)}"
        )
    return datasets.from_arrays(**made, name=data, classes=names)


def shards_of(rows: Dataset) -> Shards:
    """All rows of the site as those of one client."""
    return rows.shards(np.zeros(len(rows.labels), np.int64), 1)


def called(rows: Dataset, names: Sequence[str] | None) -> tuple[str, ...]:
    """What the classes are called: as was said, else as the columns are, else by their numbers."""
    return class_names(rows.class_names if names is None else names, rows.classes)


def described(rows: Dataset, names: Sequence[str], *, counts: bool = True) -> str:
    """One line about the rows; with `counts` for the site's own terminal and for nothing else."""
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    if not counts:
        return f"{rows.name}: {rows.classes} classes ({shown}), {rows.input}"
    test = "" if rows.test_labels is None else f", {len(rows.test_labels)} test rows"
    subjects = "" if rows.subject is None else f" of {len(np.unique(rows.subject))} subjects"
    groups = "" if rows.group_names is None else f", {len(rows.group_names)} groups"
    other = "" if rows.other_scores is None else ", scores of a second model"
    return (
        f"{rows.name}: {len(rows.labels)} rows{subjects}, {rows.classes} classes ({shown}), "
        f"{rows.input}{groups}{other}{test}"
    )
