"""Calibrators: logits -> probabilities, each with `fit`, `predict_proba`, `save`; and `load`."""

from __future__ import annotations

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.files import load
from fedcal.calibrators.histogram import BBQ, HistogramBinning, WeightedBinning
from fedcal.calibrators.identity import Identity
from fedcal.calibrators.scaling import TemperatureScaling

__all__ = [
    "BBQ",
    "Calibrator",
    "HistogramBinning",
    "Identity",
    "TemperatureScaling",
    "WeightedBinning",
    "load",
]
