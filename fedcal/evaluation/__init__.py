"""Accuracy and calibration of models, from released counts of rows by score."""

from fedcal.calibrators.score_map import calibrator_from as calibrator_from
from fedcal.evaluation.drift import Change as Change
from fedcal.evaluation.drift import drift_between as drift_between
from fedcal.evaluation.estimates import METRICS as METRICS
from fedcal.evaluation.estimates import compare as compare
from fedcal.evaluation.estimates import evaluate as evaluate
from fedcal.evaluation.estimates import evaluate_classes as evaluate_classes
from fedcal.evaluation.estimators.calibration import CalibrationTest as CalibrationTest
from fedcal.evaluation.estimators.calibration import cox as cox
from fedcal.evaluation.estimators.calibration import groups_test as groups_test
from fedcal.evaluation.estimators.curves import Curve as Curve
from fedcal.evaluation.estimators.curves import decision_curve as decision_curve
from fedcal.evaluation.estimators.curves import precision_recall_curve as precision_recall_curve
from fedcal.evaluation.estimators.curves import reliability as reliability
from fedcal.evaluation.estimators.curves import roc_curve as roc_curve
from fedcal.evaluation.estimators.curves import treat_all as treat_all
from fedcal.evaluation.histogram import Histogram as Histogram
from fedcal.evaluation.histogram import monotone_counts as monotone_counts
from fedcal.evaluation.intervals import Estimate as Estimate
from fedcal.evaluation.thresholds import Threshold as Threshold
from fedcal.evaluation.thresholds import choose_threshold as choose_threshold
