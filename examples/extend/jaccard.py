"""Jaccard index of the positive rows and the rows predicted positive."""

from __future__ import annotations

from fedcal.evaluation.estimators.metrics import Predictions


class Jaccard(Predictions):
    """Tp / (tp + fp + fn), the threat score of forecasters (Gilbert 1884)."""

    name = "jaccard"
    scores = ("positive",)
    in_groups = True
    top, bottom = (0, 0, 0, 1), (0, 1, 1, 1)
