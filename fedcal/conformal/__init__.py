"""Prediction sets that hold the label of a new row as often as they say (conformal prediction)."""

from fedcal.conformal.conformity import Conformity
from fedcal.conformal.scores import SCORES
from fedcal.conformal.sets import PredictionSets, load

__all__ = ["SCORES", "Conformity", "PredictionSets", "load"]
