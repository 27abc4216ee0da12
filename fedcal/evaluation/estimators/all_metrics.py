"""The registry of metrics: their order is that of tables and files."""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.evaluation.estimators.base import Described, Metric
from fedcal.evaluation.estimators.calibration import (
    BrierReliability,
    Ece,
    EceDebiased,
    EceEqualMass,
    Ks,
    Mce,
    SmoothEce,
)
from fedcal.evaluation.estimators.decomposition import BrierResolution
from fedcal.evaluation.estimators.gap_metric import GapMetric
from fedcal.evaluation.estimators.metrics import (
    F1,
    Accuracy,
    BalancedAccuracy,
    Brier,
    BrierUncertainty,
    Confidence,
    Gap,
    LogLoss,
    MatthewsCorrelation,
    NetBenefit,
    Precision,
    Prevalence,
    Recall,
    SmoothMetric,
    Specificity,
)
from fedcal.evaluation.estimators.multiclass import CLASS_METRICS, CONFUSION_METRICS
from fedcal.evaluation.estimators.ranking import AveragePrecision, ConfidenceAuc, RocAuc
from fedcal.evaluation.estimators.slope_intercept import CalibrationIntercept, CalibrationSlope

METRICS: dict[str, type[Metric]] = registry(
    *(Accuracy, BalancedAccuracy, Precision, Recall, Specificity, F1, MatthewsCorrelation),
    *(Prevalence, NetBenefit, Confidence, RocAuc, ConfidenceAuc, AveragePrecision),
    *(Gap, Brier, BrierResolution, BrierUncertainty, LogLoss),
    *(CalibrationSlope, CalibrationIntercept),
    *(Ece, EceDebiased, EceEqualMass, SmoothEce, Mce, Ks, BrierReliability),
)
"""Metrics of one histogram by name, in the order in which they are shown."""

SMOOTH: dict[str, type[SmoothMetric]] = {
    name: kind for name, kind in METRICS.items() if issubclass(kind, SmoothMetric)
}
"""Those that are smooth functions of counts."""

GAPS: dict[str, type[GapMetric]] = {
    name: kind for name, kind in METRICS.items() if issubclass(kind, GapMetric)
}
"""Those that are calibration errors."""


def described(name: str) -> type[Described] | None:
    """Return the metric of a name, whatever it is read from; None = there is none."""
    return METRICS.get(name) or CLASS_METRICS.get(name) or CONFUSION_METRICS.get(name)
