"""What earlier versions had, and what to use instead: a row for each name, in its user's words."""

from __future__ import annotations

from fedcal.core.errors import InputError

REMOVED = {
    "fedcal pipeline": (
        "run the commands train, simulate and evaluate with one --ledger "
        "(examples/train_calibrate_evaluate.py)"
    ),
    **dict.fromkeys(
        ("mcc", "f1", "balanced_accuracy"), "use accuracy, precision, recall and specificity"
    ),
    **dict.fromkeys(
        ("mce", "ks", "smooth_ece", "ece_debiased", "ece_equal_mass", "brier_reliability"),
        "use ece and classwise_ece",
    ),
    **dict.fromkeys(("brier_resolution", "brier_uncertainty"), "use brier"),
    **dict.fromkeys(("macro_roc_auc", "weighted_roc_auc"), "use the curves of score=classes"),
    "confusion": "use precision and recall of a class: scores of that class against all others",
    "fedcal evaluate --precision": "use --at 'precision>=SHARE'",
    "fedcal evaluate --recall": "use --at 'recall>=SHARE'",
    "fedcal evaluate --cost": "use --at 'recall>=SHARE', or --threshold by the decision curve",
    "fedcal evaluate --confident": "use --at, whose intervals hold for all thresholds at once",
    "spline": "use platt or beta",
    "estimand=clients": "use estimand=rows; fedcal evaluate --by site tells about the next site",
}
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")
