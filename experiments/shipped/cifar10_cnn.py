"""Make a file of `experiments/data` from the `logits.npz` of `fedcal train` on CIFAR-10.

Kept are all calibration rows with their clients, and every second test row. Logits are rounded to
steps of 1/8, the largest of a row to 0, so that a file is small and needs no program to be read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.shipped.making import Arrays, make
from fedcal.core.numerics import Floats
from fedcal.storage.npz import read_npz

STEP = 1 / 8
"""Exact in float16 down to -128; classwise ECE and accuracy move by less than their spread."""


def rounded(logits: Floats) -> NDArray[np.float16]:
    """Round the distances from each row's largest logit, (n, c), to steps of `STEP`."""
    below = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(STEP * np.rint(np.maximum(below, -128) / STEP), np.float16)


def shipped(file: Path) -> Arrays:
    """Make the arrays of the data file."""
    found = read_npz(file)
    return {
        "logits": rounded(found["logits"]),
        "labels": found["labels"].astype(np.uint8),
        "client": found["client"].astype(np.uint8),
        "test_logits": rounded(found["test_logits"][::2]),
        "test_labels": found["test_labels"][::2].astype(np.uint8),
    }


if __name__ == "__main__":
    make(str(__doc__), {"logits": "logits.npz of fedcal train"}, shipped)
