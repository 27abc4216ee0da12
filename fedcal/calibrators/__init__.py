"""Calibrators: scores -> probabilities, each with `fit`, `predict_proba`, `save`; and `load`."""

from fedcal.calibrators.base import Calibrator, calibrator_of, load
from fedcal.calibrators.histogram_binning import (
    BBQ,
    HistogramBinning,
    TopLabelBinning,
    WeightedBinning,
)
from fedcal.calibrators.order_preserving import OrderPreservingMLP, OrderPreservingVector
from fedcal.calibrators.scaling import (
    EntropyTemperature,
    Identity,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from fedcal.calibrators.score_map import ScoreLogistic
