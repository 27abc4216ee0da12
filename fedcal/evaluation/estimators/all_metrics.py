"""The registry of metrics: their order is that of tables and files."""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.evaluation.estimators import calibration as errors
from fedcal.evaluation.estimators import decomposition, metrics, ranking, slope_intercept
from fedcal.evaluation.estimators.base import Described, Metric
from fedcal.evaluation.estimators.gap_metric import GapMetric
from fedcal.evaluation.estimators.multiclass import CLASS_METRICS, CONFUSION_METRICS

METRICS: dict[str, type[Metric]] = registry(
    *(metrics.Accuracy, metrics.BalancedAccuracy, metrics.Precision, metrics.Recall),
    *(metrics.Specificity, metrics.F1, metrics.MatthewsCorrelation, metrics.Prevalence),
    *(metrics.NetBenefit, metrics.Confidence),
    *(ranking.RocAuc, ranking.ConfidenceAuc, ranking.AveragePrecision),
    *(metrics.Gap, metrics.Brier, decomposition.BrierResolution, metrics.BrierUncertainty),
    *(metrics.LogLoss, metrics.LogLossCut),
    *(slope_intercept.CalibrationSlope, slope_intercept.CalibrationSlopeCut),
    *(slope_intercept.CalibrationIntercept, slope_intercept.CalibrationInterceptCut),
    *(errors.Ece, errors.EceDebiased, errors.EceEqualMass, errors.SmoothEce),
    *(errors.Mce, errors.Ks, errors.BrierReliability),
)
"""Metrics of one histogram by name, in the order in which they are shown."""

SMOOTH: dict[str, type[metrics.SmoothMetric]] = {
    name: kind for name, kind in METRICS.items() if issubclass(kind, metrics.SmoothMetric)
}
"""Metrics that are smooth functions of counts."""

GAPS: dict[str, type[GapMetric]] = {
    name: kind for name, kind in METRICS.items() if issubclass(kind, GapMetric)
}
"""Metrics that are calibration errors."""


def described(name: str) -> type[Described] | None:
    """Return the metric of a name, whatever it is read from; None = there is none."""
    return METRICS.get(name) or CLASS_METRICS.get(name) or CONFUSION_METRICS.get(name)
