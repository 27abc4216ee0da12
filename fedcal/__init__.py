"""fedcal: private, federated calibration of classifiers.

The science, without Flower: shards, calibrators, metrics, secure aggregation, privacy. Three rooms
stand above it: `fedcal.clients` computes contributions, `fedcal.strategies` asks and learns,
`fedcal.experiments` runs and shows. Their folders lie beside this one; `setup.py` maps them.
"""

# ruff: noqa: F405  (names of star imports, which only type checkers read)
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcal.core.checks import (
    BudgetExceeded,
    FedcalError,
    InputError,
    Interrupted,
    RoundFailed,
    TooLittle,
    refuse,
)

if TYPE_CHECKING:
    from fedcal.clients.any_app import add_answers
    from fedcal.experiments import *  # noqa: F403
    from fedcal.strategies.base import FederatedStrategy
    from fedcal.strategies.methods.averaging import (
        FedCal,
        FedMatrix,
        FedOPVector,
        FedTemp,
        FedVector,
    )
    from fedcal.strategies.methods.conformal import FedConformal
    from fedcal.strategies.methods.evaluate import FedAccuracy, FedEvaluate
    from fedcal.strategies.methods.histograms import DPHistogram, FedBBQ, FedBin
    from fedcal.strategies.methods.newton import FedNewton, FedNewtonEntropy, FedNewtonVector
    from fedcal.strategies.methods.search import ECET, NLLT, AccT, FedOneShot
    from fedcal.strategies.methods.training import DPTS, DPFedAvg, DPPlatt, FedAvg, FedSGD

__version__: str
__all__ = [
    "DPTS",
    "ECET",
    "NLLT",
    "AccT",
    "AfterTraining",
    "BudgetExceeded",
    "CalibratedModel",
    "Comparison",
    "DPFedAvg",
    "DPHistogram",
    "DPPlatt",
    "FedAccuracy",
    "FedAvg",
    "FedBBQ",
    "FedBin",
    "FedCal",
    "FedConformal",
    "FedEvaluate",
    "FedMatrix",
    "FedNewton",
    "FedNewtonEntropy",
    "FedNewtonVector",
    "FedOPVector",
    "FedOneShot",
    "FedSGD",
    "FedTemp",
    "FedVector",
    "FedcalError",
    "FederatedCalibrator",
    "FederatedStrategy",
    "InProcessGrid",
    "InputError",
    "Interrupted",
    "RoundFailed",
    "SimulationResult",
    "TooLittle",
    "__version__",
    "add_answers",
    "compare",
    "evaluate",
    "plan",
    "prediction_sets",
    "run_inline",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a function or class on first use, so that `import fedcal` is fast."""
    if name == "__version__":  # pyproject.toml is its one place
        return import_module("importlib.metadata").version("fedcal")
    if name not in __all__:
        refuse("fedcal", name)
    if name == "add_answers":
        return import_module("fedcal.clients.any_app").add_answers
    running = import_module("fedcal.experiments")
    return getattr(running if name in running.__all__ else import_module("fedcal.strategies"), name)
