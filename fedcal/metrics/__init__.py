"""Calibration of predicted probabilities: scores, and the mergeable record behind them."""

from fedcal.metrics.binning import bin_index as bin_index
from fedcal.metrics.bootstrap import metric_intervals as metric_intervals
from fedcal.metrics.reliability import Reliability as Reliability
from fedcal.metrics.standard import accuracy as accuracy
from fedcal.metrics.standard import below_floor as below_floor
from fedcal.metrics.standard import brier as brier
from fedcal.metrics.standard import classwise_ece as classwise_ece
from fedcal.metrics.standard import ece as ece
from fedcal.metrics.standard import mce as mce
from fedcal.metrics.standard import nll as nll
from fedcal.metrics.standard import summary as summary
