"""Calibration of predicted probabilities: scores, and the mergeable record behind them."""

from fedcal.metrics.binning import bin_index
from fedcal.metrics.bootstrap import metric_intervals
from fedcal.metrics.reliability import Reliability
from fedcal.metrics.standard import accuracy, brier, classwise_ece, ece, mce, nll, summary

__all__ = [
    "Reliability",
    "accuracy",
    "bin_index",
    "brier",
    "classwise_ece",
    "ece",
    "mce",
    "metric_intervals",
    "nll",
    "summary",
]
