"""Prediction sets with guaranteed coverage (conformal prediction)."""

from fedcal.calibrators.conformity import SCORES, Conformity
from fedcal.conformal.sets import PredictionSets, load

__all__ = ["SCORES", "Conformity", "PredictionSets", "load"]
