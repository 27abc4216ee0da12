"""Make the shipped features `mnist-features` from your own copy of MNIST.

What 16 random filters see (`RandomFilters`) of the first 10,000 training images, of every fifth
test image, and of these after each of the 15 corruptions with severity 3. No number of the map
comes from MNIST: a model that learns from these rows with privacy is private for the images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.corruptions import CORRUPTIONS, corrupt
from experiments.shipped.making import IMAGES, Arrays, labelled_images, make
from fedcal.core.numerics import Purpose, stream

ROWS, EVERY, SEVERITY, BATCH = 10_000, 5, 3, 16

STEP = 1 / 40
"""Grid of the features of a row of length 1: coarse, so that the file is small."""


class RandomFilters:
    """Random 5 x 5 filters, ReLU, means over 4 x 4 regions: an untrained network.

    16 filters with mean 0 and unit length, drawn by a fixed seed, give 256 features. Each image is
    first brought to mean 0 and standard deviation 1, and a place counts as far as a filter's
    response there exceeds 1.5 (after Coates, Lee and Ng 2011, whose filters are learnt).
    """

    FILTERS, SIDE, REGIONS, THRESHOLD = 16, 5, 4, 1.5

    def __init__(self) -> None:
        drawn = stream(0, Purpose.SAMPLING, 0, "features random-filters").standard_normal(
            (self.SIDE * self.SIDE, self.FILTERS)
        )
        drawn -= drawn.mean(axis=0)
        self._filters = (drawn / np.linalg.norm(drawn, axis=0)).astype(np.float32)

    def features(self, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(n, 256) of grey images (n, h, w)."""
        grey = rows.astype(np.float32) / 255
        grey -= grey.mean(axis=(1, 2), keepdims=True)
        grey /= np.maximum(grey.std(axis=(1, 2), keepdims=True), 0.01)
        windows = np.lib.stride_tricks.sliding_window_view(
            grey, (self.SIDE, self.SIDE), axis=(1, 2)
        )
        n, height, width = windows.shape[:3]
        flat = windows.reshape(n * height * width, self.SIDE * self.SIDE)
        seen = np.maximum(flat @ self._filters - np.float32(self.THRESHOLD), 0)
        bands = np.array_split(seen.reshape(n, height, width, self.FILTERS), self.REGIONS, axis=1)
        regions = [part for band in bands for part in np.array_split(band, self.REGIONS, axis=2)]
        return np.concatenate([part.mean(axis=(1, 2)) for part in regions], axis=1)


def kept(images: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Return features (n, 256) in steps of int8, cut towards zero: no row is longer than 1."""
    extractor, found = RandomFilters(), []
    for k in range(0, len(images), BATCH):
        x = extractor.features(images[k : k + BATCH])
        length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))
        unit = (x / np.where(length > 0, length, 1)[:, None]).astype(np.float32)
        found.append(np.trunc(unit / np.float32(STEP)).astype(np.int8))
    return np.concatenate(found)


def shipped(train: Path, test: Path) -> Arrays:
    """Make the arrays of the features file from two files or folders of images."""
    first, second = labelled_images(train, test)
    images = second.x[::EVERY]
    corrupted = {name: kept(corrupt(images, name, SEVERITY, 0)) for name in CORRUPTIONS}
    return {
        "scale": np.array(STEP),
        "norm": np.array(1.0),
        "class_names": np.array([str(digit) for digit in range(10)]),
        "features": kept(first.x[:ROWS]),
        "labels": first.y[:ROWS].astype(np.uint8),
        "test_features": kept(images),
        "test_labels": second.y[::EVERY].astype(np.uint8),
        **{f"test_{name}_{SEVERITY}": x for name, x in corrupted.items()},
    }


if __name__ == "__main__":
    make(str(__doc__), IMAGES, shipped)
