"""How good a model is, and how well calibrated, read from released counts of rows by score."""

from __future__ import annotations

from fedcal.evaluation.estimates import METRICS, evaluate
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import Estimate

__all__ = ["METRICS", "Estimate", "Histogram", "evaluate"]
