"""Sources of random bits: one signature, two sources."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Words", "seeded_words", "system_words"]

Words = Callable[[int], NDArray[np.uint64]]
"""``words(n)`` returns n fresh, independent, uniformly random 64-bit words."""


def system_words(n: int) -> NDArray[np.uint64]:
    """Return `n` words of the operating system's CSPRNG; nothing is buffered between calls."""
    return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


def seeded_words(generator: np.random.Generator) -> Words:
    """Return repeatable words of `generator`, for simulation.

    Anyone with the seed knows the noise.
    """

    def words(n: int) -> NDArray[np.uint64]:
        # random_raw would be shorter, but some bit generators return 32 bits from it
        return generator.integers(0, 2**64, n, dtype=np.uint64)

    return words
