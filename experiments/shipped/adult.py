"""Make the shipped set `adult-income` from UCI's Adult.

A logistic regression learns from the census' training rows who earns more than 50,000 dollars. It
is not told sex and race. Kept are its log-odds on the test rows, and sex and race as the group of
each row. Overall it is calibrated; but women earn that much less often than it says, for what it
is told (marriage, occupation, hours) does not make up for what it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from experiments.shipped.making import TABLES, Arrays, logistic, make
from fedcal.core.numerics import Floats, Integers

UCI = TABLES["adult"]
"""Columns of UCI's files, and inputs of the regression."""

FILES = {"train": "adult.data of UCI, or .gz", "test": "adult.test of UCI, or .gz"}

Table = dict[str, NDArray[np.str_]]


def read(file: Path) -> Table:
    """Read the columns of `adult.data` or `adult.test` as text; `.gz` is unpacked."""
    # the first line of adult.test is "|1x3 Cross validator"
    options: Any = {"names": UCI["columns"], "dtype": str, "skipinitialspace": True, "comment": "|"}
    found = pandas.read_csv(file, keep_default_na=False, **options)
    return {name: found[name].to_numpy(np.str_) for name in UCI["columns"]}


def labels_of(table: Table) -> Integers:
    """(n,) 1 = more than 50,000 dollars; `adult.test` ends its labels with a full stop."""
    return np.asarray(np.char.startswith(table["income"], ">"), np.int64)


def groups_of(table: Table) -> NDArray[np.str_]:
    """(n,) sex and race of each row."""
    return np.char.add(np.char.add(table["sex"], ", "), table["race"])


def columns(table: Table, train: Table) -> Floats:
    """(n, d) of the regression: 1, numbers in the training rows' standard units, codes one-hot.

    The first of a code's values, sorted, is the reference; `?` is a value like any other.
    """
    found = [np.ones(len(table["income"]))]
    for name in UCI["numbers"]:
        learnt, x = _numbers(train, name), _numbers(table, name)
        found.append((x - learnt.mean()) / learnt.std())
    for name in UCI["codes"]:
        values = sorted(set(train[name].tolist()))
        found += [(table[name] == value).astype(np.float64) for value in values[1:]]
    return np.stack(found, axis=1)


def _numbers(table: Table, name: str) -> Floats:
    x = table[name].astype(np.float64)
    return np.log1p(x) if name in UCI["skewed"] else x


def shipped(train: Path, test: Path) -> Arrays:
    """Make the arrays of the data file from the two files of UCI's archive."""
    learnt, held = read(train), read(test)
    weights = logistic(columns(learnt, learnt), labels_of(learnt))
    names, group = np.unique(groups_of(held), return_inverse=True)
    return {
        "log_odds": (columns(held, learnt) @ weights).astype(np.float16),
        "labels": labels_of(held).astype(np.uint8),
        "group": group.astype(np.uint8),
        "group_names": names,
    }


if __name__ == "__main__":
    make(str(__doc__), FILES, shipped)
