"""Laplace noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedcal.core.types import Integers
from fedcal.mechanisms import samplers
from fedcal.mechanisms.additive import Laplacian
from fedcal.mechanisms.base import Mechanism, Source, words_of
from fedcal.mechanisms.discrete_laplace import DiscreteLaplace


class Laplace(Laplacian):
    """Laplace noise, rounded to the grid: epsilon-DP (Dwork et al. 2006).

    Rounding is post-processing.
    """

    name: ClassVar[str] = "laplace"
    noise: ClassVar[str] = "Laplace noise"
    meaning: ClassVar[str] = "Laplace noise"
    divisible: ClassVar[bool] = False

    @classmethod
    def in_shares(cls) -> type[Mechanism] | None:
        """Return the discrete mechanism."""
        return DiscreteLaplace

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Return draws; with a seed they are in double precision, several times as fast."""
        if source is not None:
            return np.rint(source.laplace(0.0, scale, n)).astype(np.int64)
        return samplers.rounded_laplace(scale, n, words_of(source))
