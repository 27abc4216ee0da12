"""How good a model is, and how well calibrated, read from released counts of rows by score."""

from __future__ import annotations

from fedcal.evaluation.histogram import Histogram

__all__ = ["Histogram"]
