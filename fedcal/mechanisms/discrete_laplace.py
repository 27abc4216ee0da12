"""Discrete Laplace noise, complete or in shares."""

from __future__ import annotations

from typing import ClassVar

from fedcal.core.types import Integers
from fedcal.mechanisms import samplers
from fedcal.mechanisms.additive import Laplacian
from fedcal.mechanisms.base import Source, words_of


class DiscreteLaplace(Laplacian):
    """Discrete Laplace noise, `P(k) ~ exp(-|k| / scale)` on the grid: epsilon-DP.

    Source: Ghosh et al. 2009.

    It is a sum of n Polya differences, so each of n clients can add a share.
    """

    name: ClassVar[str] = "discrete-laplace"
    noise: ClassVar[str] = "discrete Laplace noise"
    meaning: ClassVar[str] = "discrete Laplace noise"
    divisible: ClassVar[bool] = True

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Return complete draws, or Polya shares."""
        if shares == 1:
            return samplers.discrete_laplace(scale, n, words_of(source))
        return samplers.polya_share(scale, shares, n, words_of(source))
