"""Calibrators: scores -> probabilities, each with `fit`, `predict_proba`, `save`; and `load`."""

from fedcal.calibrators.base import Calibrator, calibrator_of, load
from fedcal.calibrators.histogram_binning import BBQ, HistogramBinning, WeightedBinning
from fedcal.calibrators.linear_scaling import EntropyTemperature, MatrixScaling, VectorScaling
from fedcal.calibrators.order_preserving import OrderPreservingVector
from fedcal.calibrators.order_preserving_mlp import OrderPreservingMLP
from fedcal.calibrators.scaling import Identity, TemperatureScaling
from fedcal.calibrators.score_map import ScoreLogistic, ScoreMap
from fedcal.calibrators.top_label import TopLabelBinning

__all__ = [
    "BBQ",
    "Calibrator",
    "EntropyTemperature",
    "HistogramBinning",
    "Identity",
    "MatrixScaling",
    "OrderPreservingMLP",
    "OrderPreservingVector",
    "ScoreLogistic",
    "ScoreMap",
    "TemperatureScaling",
    "TopLabelBinning",
    "VectorScaling",
    "WeightedBinning",
    "calibrator_of",
    "load",
]
