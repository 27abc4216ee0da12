"""Accuracy and calibration of models, from released counts of rows by score."""

from functools import partial
from typing import TYPE_CHECKING

from fedcal.calibrators.score_map import calibrator_from
from fedcal.core.checks import refuse
from fedcal.evaluation.estimates import METRICS, compare, evaluate, evaluate_classes
from fedcal.evaluation.estimators.calibration import (
    CalibrationTest,
    EvaluationCurve,
    cox,
    decision_curve,
    pr_curve,
    reliability,
    roc_curve,
    treat_all,
)
from fedcal.evaluation.intervals import Estimate
from fedcal.metrics.histogram import Histogram, monotone_counts

__all__ = [
    "METRICS",
    "CalibrationTest",
    "Estimate",
    "EvaluationCurve",
    "Histogram",
    "calibrator_from",
]
__all__ += ["compare", "cox", "decision_curve", "evaluate", "evaluate_classes", "monotone_counts"]
__all__ += ["pr_curve", "reliability", "roc_curve", "treat_all"]

if not TYPE_CHECKING:
    __getattr__ = partial(refuse, __name__)
