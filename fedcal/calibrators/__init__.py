"""Calibrators: scores -> probabilities, each with `fit`, `predict_proba`, `save`; and `load`."""

from fedcal.calibrators.base import Calibrator as Calibrator
from fedcal.calibrators.base import calibrator_of as calibrator_of
from fedcal.calibrators.base import load as load
from fedcal.calibrators.histogram_binning import BBQ as BBQ
from fedcal.calibrators.histogram_binning import HistogramBinning as HistogramBinning
from fedcal.calibrators.histogram_binning import TopLabelBinning as TopLabelBinning
from fedcal.calibrators.histogram_binning import WeightedBinning as WeightedBinning
from fedcal.calibrators.order_preserving import OrderPreservingMLP as OrderPreservingMLP
from fedcal.calibrators.order_preserving import OrderPreservingVector as OrderPreservingVector
from fedcal.calibrators.scaling import EntropyTemperature as EntropyTemperature
from fedcal.calibrators.scaling import Identity as Identity
from fedcal.calibrators.scaling import MatrixScaling as MatrixScaling
from fedcal.calibrators.scaling import TemperatureScaling as TemperatureScaling
from fedcal.calibrators.scaling import VectorScaling as VectorScaling
from fedcal.calibrators.score_map import ScoreLogistic as ScoreLogistic
