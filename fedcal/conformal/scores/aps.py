"""APS: the probability of all classes up to the label."""

from __future__ import annotations

import numpy as np

from fedcal.conformal.scores.ranked import Ranked, mass
from fedcal.core.types import Floats, override


class APS(Ranked):
    """Probability of the label and of all classes ranked above it, minus the part u of its own.

    Sets adapt to how hard a row is (Romano, Sesia & Candes 2020, equations 5 to 8).
    """

    name = "aps"

    @classmethod
    @override
    def by_rank(cls, falling: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        return np.minimum(mass(falling, u), 1.0)
