"""Random numbers by image: an image's draws do not depend on the other images."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedcal.core.streams import check_seed
from fedcal.core.types import Integers

Images: TypeAlias = NDArray[np.float32]
"""(n, h, w, channels) in [0, 1]."""


class Draws:
    """One generator for each image, keyed by seed, purpose and the image's number.

    The key does not include the severity: where two severities of one image draw alike they share
    their randomness, so that a stronger corruption is the same one, stronger.
    """

    def __init__(self, seed: int, purpose: str, numbers: Integers) -> None:
        text = f"fedcal corruption {check_seed(seed)} {purpose}"
        key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8")
        self._streams = [
            np.random.Generator(np.random.Philox(key=key, counter=[0, 0, number, 0]))
            for number in numbers.tolist()
        ]

    def normal(self, *shape: int) -> Images:
        """Draw (n, *shape) standard normal numbers."""
        return self._filled(shape, lambda g, out: g.standard_normal(out=out, dtype=np.float32))

    def uniform(self, *shape: int) -> Images:
        """Draw (n, *shape) numbers in [0, 1)."""
        return self._filled(shape, lambda g, out: g.random(out=out, dtype=np.float32))

    def offsets(self, reach: int, *shape: int) -> NDArray[np.int8]:
        """Draw (n, *shape) whole numbers in [-reach, reach)."""
        return np.stack([g.integers(-reach, reach, shape, np.int8) for g in self._streams])

    def poisson(self, mean: Images) -> Images:
        """Draw counts with the means `mean`, shape (n, ...)."""
        pairs = zip(self._streams, mean, strict=True)
        return np.stack([g.poisson(m).astype(np.float32) for g, m in pairs])

    def _filled(self, shape: Sequence[int], fill: Callable[..., Any]) -> Images:
        out = np.empty((len(self._streams), *shape), np.float32)
        for i, generator in enumerate(self._streams):
            fill(generator, out[i, ...])
        return out
