"""Prediction sets with guaranteed coverage (conformal prediction)."""

from fedcal.conformal.conformity import Conformity
from fedcal.conformal.scores import SCORES
from fedcal.conformal.sets import PredictionSets, load

__all__ = ["SCORES", "Conformity", "PredictionSets", "load"]
