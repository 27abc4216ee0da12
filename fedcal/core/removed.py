"""What earlier versions had, and what to use instead: a row for each name, in its user's words."""

from __future__ import annotations

from fedcal.core.errors import InputError

REMOVED = {
    "fedcal pipeline": (
        "run the commands train, simulate and evaluate with one --ledger "
        "(examples/train_calibrate_evaluate.py)"
    ),
    **dict.fromkeys(
        ("mcc", "f1", "balanced_accuracy"), "accuracy, precision, recall and specificity"
    ),
    **dict.fromkeys(
        ("mce", "ks", "smooth_ece", "ece_debiased", "ece_equal_mass", "brier_reliability"),
        "ece and classwise_ece",
    ),
    **dict.fromkeys(("brier_resolution", "brier_uncertainty"), "brier"),
    **dict.fromkeys(("macro_roc_auc", "weighted_roc_auc"), "the curves of score=classes"),
    "confusion": "precision and recall of a class: scores of that class against all others",
    "fedcal evaluate --precision": "--at 'precision>=SHARE'",
    "fedcal evaluate --recall": "--at 'recall>=SHARE'",
    "fedcal evaluate --cost": "--at 'recall>=SHARE', or --threshold by the decision curve",
    "fedcal evaluate --confident": "--at, whose intervals hold for all thresholds at once",
    "spline": "platt or beta",
    "estimand=clients": "estimand=rows; fedcal evaluate --by site tells about the next site",
}
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")
