"""LAC: one minus the label's probability."""

from __future__ import annotations

import numpy as np

from fedcal.conformal.scores.base import Score
from fedcal.core.types import Floats, Integers, override


class LAC(Score):
    """1 - p_y: least ambiguous sets, of the least mean size (Sadinle, Lei & Wasserman 2019)."""

    name = "lac"

    @classmethod
    @override
    def of_all(cls, probs: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        return 1.0 - probs

    @classmethod
    @override
    def of_labels(
        cls, probs: Floats, labels: Integers, u: Floats | None, penalty: float, free: int
    ) -> Floats:
        return 1.0 - probs[np.arange(len(labels)), labels]
