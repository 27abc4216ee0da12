"""Margin: difference between the label's probability and the largest of another class."""

from __future__ import annotations

import numpy as np

from fedcal.conformal.scores.base import Score
from fedcal.core.types import Floats, override


class Margin(Score):
    """Score (1 + the largest probability of another class - p_y) / 2.

    At most 1/2 for the predicted class (Johansson, Linusson, Löfström & Boström 2017, whose margin
    is scaled here to [0, 1], which changes no set).
    """

    name = "margin"

    @classmethod
    @override
    def of_all(cls, probs: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        rows = np.arange(len(probs))
        first = probs.argmax(axis=1)
        others = probs.copy()
        others[rows, first] = -1.0
        best = np.repeat(probs[rows, first][:, None], probs.shape[1], axis=1)
        best[rows, first] = others.max(axis=1)
        return np.asarray((1.0 + (best - probs)) / 2.0)
