"""Prediction sets with guaranteed coverage (conformal prediction)."""

from fedcal.conformal.sets import PredictionSets, load
from fedcal.metrics.conformity import SCORES, Conformity

__all__ = ["SCORES", "Conformity", "PredictionSets", "load"]
