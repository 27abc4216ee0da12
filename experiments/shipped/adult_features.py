"""Make the shipped features `adult-features` from UCI's Adult.

What the census says of a person, but for sex and race, as 84 numbers; sex and race are the group of
a row. Ranges and codes are those of UCI's description, not of the rows: nothing is standardised by
a statistic, so that a model that learns from these rows with privacy is private for the census.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.shipped.adult import FILES, UCI, Table, groups_of, labels_of, read
from experiments.shipped.making import Arrays, make
from fedcal.core.numerics import Floats

_LONGEST = np.sqrt(len(UCI["ranges"]) + len(UCI["listed"]))  # each is at most 1
STEP = 1 / (127 * _LONGEST)


def features(table: Table) -> Floats:
    """(n, 84) numbers: ranges, then codes one-hot; no row is longer than 1."""
    columns: list[Floats] = []
    for name, (low, high) in UCI["ranges"].items():
        x = np.clip(table[name].astype(np.float64), low, high)
        if low == 0:
            columns.append(np.log1p(x) / np.log1p(high))
        else:
            columns.append((2 * x - low - high) / (high - low))
    for name, codes in UCI["listed"].items():
        columns += [(table[name] == code).astype(np.float64) for code in codes]
    return np.asarray(np.stack(columns, axis=1) / _LONGEST)


def shipped(train: Path, test: Path) -> Arrays:
    """Make the arrays of the features file from the two files of UCI's archive."""
    tables = {"": read(train), "test_": read(test)}
    groups = {part: groups_of(table) for part, table in tables.items()}
    names = np.unique(np.concatenate(list(groups.values())))
    arrays: Arrays = {
        "scale": np.array(STEP),
        "norm": np.array(1.0),
        "class_names": np.array(["<=50K", ">50K"]),
        "group_names": names,
    }
    for part, table in tables.items():
        arrays[f"{part}features"] = np.trunc(features(table) / STEP).astype(np.int8)
        arrays[f"{part}labels"] = labels_of(table).astype(np.uint8)
        arrays[f"{part}group"] = np.searchsorted(names, groups[part]).astype(np.uint8)
    return arrays


if __name__ == "__main__":
    make(str(__doc__), FILES, shipped)
