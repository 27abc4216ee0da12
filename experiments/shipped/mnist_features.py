"""Make the shipped features `mnist-features` from your own copy of MNIST.

What 16 random filters see (`RandomFilters`) of the first 10,000 training images, of every fifth
test image, and of these after each of the 15 corruptions with severity 3. No number of the map
comes from MNIST: a model that learns from these rows with privacy is private for the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.corruptions import CORRUPTIONS, corrupt
from experiments.shift.mnist import TABLE
from experiments.shipped.image_features import BATCH, RandomFilters, steps, unit
from experiments.shipped.making import Arrays, make
from fedcal.run.training_data import read_labelled

ROWS, EVERY, SEVERITY = 10_000, 5, 3

STEP = 1 / 40
"""Of the features of a row of length 1: coarse, so that the file is small."""


def shipped(train: Path, test: Path) -> Arrays:
    """Make the arrays of the features file from two files or folders of images."""
    extractor = RandomFilters()

    def kept(images: NDArray[np.uint8]) -> NDArray[np.int8]:
        batches = [images[k : k + BATCH] for k in range(0, len(images), BATCH)]
        return np.concatenate([steps(unit(extractor.features(x)), STEP) for x in batches])

    first, second = read_labelled(str(train)), read_labelled(str(test))
    second = second.test or second
    images = second.x[::EVERY]
    arrays: Arrays = {
        "scale": np.array(STEP),
        "norm": np.array(1.0),
        "class_names": np.array([str(digit) for digit in range(10)]),
        "features": kept(first.x[:ROWS]),
        "labels": first.y[:ROWS].astype(np.uint8),
        "test_features": kept(images),
        "test_labels": second.y[::EVERY].astype(np.uint8),
    }
    for name in CORRUPTIONS:
        changed = corrupt(images, name, SEVERITY, 0, table=TABLE)
        arrays[f"test_{name}_{SEVERITY}"] = kept(changed)
    return arrays


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the features."""
    inputs = {"train": ".npz with x and y", "test": "the same of the test rows"}
    make("shipped.mnist_features", str(__doc__), inputs, shipped, arguments)


if __name__ == "__main__":
    main()
