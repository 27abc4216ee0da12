"""Margin: how far the label's probability is below the best other one."""

from __future__ import annotations

import numpy as np

from fedcal.conformal.scores.base import Score
from fedcal.core.types import Floats


class Margin(Score):
    """(1 + the largest probability of any other class - p_y) / 2.

    At most 1/2 for the predicted class (Johansson, Linusson, Löfström & Boström 2017, who call it
    the margin; scaled to [0, 1], which changes no set).
    """

    name = "margin"

    @classmethod
    def of_all(cls, probs: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        """(n, c)."""
        rows = np.arange(len(probs))
        first = probs.argmax(axis=1)
        others = probs.copy()
        others[rows, first] = -1.0
        best = np.repeat(probs[rows, first][:, None], probs.shape[1], axis=1)
        best[rows, first] = others.max(axis=1)
        return np.asarray((1.0 + (best - probs)) / 2.0)
