"""RAPS: APS with a penalty for labels of a high rank."""

from __future__ import annotations

import numpy as np

from fedcal.conformal.scores.ranked import Ranked, mass
from fedcal.core.types import Floats, override


class RAPS(Ranked):
    """(APS + penalty * max(0, rank - free)) / (1 + penalty * max(0, c - free)), ranks from 1.

    Sets are smaller than those of APS where probabilities have long tails (Angelopoulos, Bates,
    Malik & Jordan 2021, equation 4: their lambda is `penalty`, their k_reg is `free`). The divisor
    is the largest value of the sum; it depends on the number of classes and on the two settings
    alone, and so changes the scale of scores and no set.
    """

    name = "raps"

    @classmethod
    @override
    def by_rank(cls, falling: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        excess = penalty * np.maximum(0.0, np.arange(1, falling.shape[1] + 1) - free)
        return np.asarray(np.minimum((mass(falling, u) + excess) / (1.0 + excess[-1]), 1.0))
