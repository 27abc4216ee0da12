"""What earlier versions had, and what to use instead: a row for each name, in its user's words."""

from __future__ import annotations

from typing import NoReturn

from fedcal.core.errors import InputError

REMOVED = {
    "fedcal pipeline": (
        "run the commands train, simulate and evaluate with one --ledger "
        "(examples/train_calibrate_evaluate.py)"
    ),
    "method fednewton-class": "use fednewton",
    "method fednewton-opvector": "use fednewton, or without privacy fedopvector",
    "method fednewton-top": "use fednewton",
    "method auto": "use what fedcal plan recommends",
    "method evaluate-auc": "use evaluate, which has the AUC",
    "method evaluate-ks": "use evaluate, which has the calibration error",
    "only auc": "run evaluate without --only: it has the AUC",
    "only ks": "run evaluate without --only: it has the calibration error",
    "search bisection": "use posterior",
    "search exponential": "use posterior (nllt and ecet still have it)",
    "fedcal.FedNewtonClass": "use FedNewton",
    "fedcal.FedNewtonOPVector": "use FedNewton, or without privacy FedOPVector",
    "fedcal.FedNewtonTop": "use FedNewton",
    "fedcal.FedAUC": "use FedEvaluate",
    "fedcal.FedKS": "use FedEvaluate",
}
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")


def refuse(module: str, name: str) -> NoReturn:
    """Raise for a name that a module lacks: InputError if it was removed, else AttributeError."""
    check_kept(f"{module}.{name}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
