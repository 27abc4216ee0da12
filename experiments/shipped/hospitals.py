"""Make the shipped set `heart-disease` from UCI's files of four hospitals.

A logistic regression learns from half of Cleveland's patients whether a heart is diseased. Kept are
its logits on the other half, and on the patients of the other three hospitals: what it is like to
get a model from elsewhere. (Detrano et al. 1989 took their discriminant function from Cleveland to
these hospitals in just this way, and found that it overestimates disease.)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas

from experiments.shipped.making import TABLES, Arrays, logistic, make
from fedcal.core.numerics import Floats, Integers, Purpose, stream

UCI = TABLES["heart"]
"""Files, features and codes of UCI's archive."""

HOSPITALS: dict[str, str] = UCI["files"]


def read_patients(folder: Path) -> tuple[Integers, Floats, Integers]:
    """Read the rows of the four files of UCI's archive.

    The place in `HOSPITALS` (n,); x (n, 13), with nan for missing values; y (n,), 1 = diseased
    (UCI's `num` above 0).
    """
    tables = [
        pandas.read_csv(folder / name, header=None, na_values="?").to_numpy(np.float64)
        for name in HOSPITALS.values()
    ]
    hospital = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    table = np.concatenate(tables)
    x, num = table[:, :-1].copy(), table[:, -1]
    for feature, code in UCI["unknown"].items():
        column = x[:, UCI["features"].index(feature)]
        column[column == code] = np.nan
    return hospital, x, (num > 0).astype(np.int64)


def halves(hospital: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the training, calibration and test rows, in the order of the files.

    Half of Cleveland's rows train the model; each hospital's other rows are halved.
    """
    rng = stream(0, Purpose.SPLIT, what="hospitals")
    train, fit, test = [], [], []
    for k in range(len(HOSPITALS)):
        rows = rng.permutation(np.flatnonzero(hospital == k))
        if k == 0:
            train.append(rows[: len(rows) // 2])
            rows = rows[len(rows) // 2 :]
        fit.append(rows[: len(rows) // 2])
        test.append(rows[len(rows) // 2 :])
    return tuple(np.sort(np.concatenate(part)) for part in (train, fit, test))  # type: ignore[return-value]


def design(x: Floats, train: Integers) -> Floats:
    """Columns of the regression, (n, 19): 1, numbers in standard units, codes one-hot.

    A missing number becomes the median of the training rows, a missing code the most frequent one.
    Indicators of missing values are left out: the training rows miss too few to learn from them.
    """
    columns = [np.ones(len(x))]
    for feature, values in zip(UCI["features"], x.T, strict=True):
        known = values[train][~np.isnan(values[train])]
        if codes := UCI["codes"].get(feature):
            usual = max(codes, key=lambda code: int((known == code).sum()))
            filled = np.where(np.isnan(values), usual, values)
            columns += [(filled == code).astype(np.float64) for code in codes[1:]]
        else:
            middle, scale = np.median(known), known.std() or 1.0
            columns.append((np.where(np.isnan(values), middle, values) - middle) / scale)
    return np.stack(columns, axis=1)


def shipped(folder: Path) -> Arrays:
    """Make the arrays of the data file."""
    hospital, values, y = read_patients(folder)
    train, fit, test = halves(hospital)
    x = design(values, train)
    z = x @ logistic(x[train], y[train])
    arrays: Arrays = {"subject": fit.astype(np.uint16), "client_names": np.array(list(HOSPITALS))}
    for prefix, rows in (("", fit), ("test_", test)):
        logits = np.stack([np.zeros(len(rows)), z[rows]], axis=1)
        arrays[f"{prefix}logits"] = logits.astype(np.float16)
        arrays[f"{prefix}labels"] = y[rows].astype(np.uint8)
        arrays[f"{prefix}client"] = hospital[rows].astype(np.uint8)
    return arrays


if __name__ == "__main__":
    make(str(__doc__), {"folder": "with processed.*.data of UCI"}, shipped)
