"""The registry of metrics: their order is that of tables and files."""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.evaluation.estimators import metrics, slope_intercept
from fedcal.evaluation.estimators.base import Described, Metric
from fedcal.evaluation.estimators.calibration import ClasswiseEce, Ece

METRICS: dict[str, type[Metric]] = registry(
    *(metrics.Accuracy, metrics.Precision, metrics.Recall, metrics.Specificity),
    *(metrics.Prevalence, metrics.NetBenefit),
    *(metrics.RocAuc, metrics.ConfidenceAuc, metrics.AveragePrecision),
    *(metrics.Gap, metrics.Brier, metrics.LogLoss, metrics.LogLossCut),
    *(slope_intercept.CalibrationSlope, slope_intercept.CalibrationSlopeCut),
    *(slope_intercept.CalibrationIntercept, slope_intercept.CalibrationInterceptCut),
    Ece,
)
"""Metrics of one histogram by name, in the order in which they are shown."""


def described(name: str) -> type[Described] | None:
    """Return the metric of a name, whatever it is read from; None = there is none."""
    return ClasswiseEce if name == ClasswiseEce.name else METRICS.get(name)
