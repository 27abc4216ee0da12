"""fedcal: private, federated calibration of classifiers.

The science, without Flower: rows, calibrators, metrics, secure aggregation, privacy. Above it
`fedcal.clients` computes contributions and `fedcal.strategies` asks and learns (their folders lie
beside this one; `setup.py` maps them); `fedcal.results` shows, `fedcal.run` simulates and compares,
`fedcal.sites` is about real sites, `fedcal.cli` is the command.
"""

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
    from fedcal.clients.any_app import add_answers, score_batches, with_answers
    from fedcal.run.after_training import AfterTraining
    from fedcal.run.comparison import Comparison, compare
    from fedcal.run.engines.flower import InProcessGrid
    from fedcal.run.engines.inline import run_inline
    from fedcal.run.estimator import CalibratedModel, FederatedCalibrator
    from fedcal.run.plan import plan
    from fedcal.run.result import SimulationResult
    from fedcal.run.simulation import evaluate, prediction_sets, simulate
    from fedcal.run.training import train
    from fedcal.strategies.base import FederatedStrategy
    from fedcal.strategies.methods.averaging import (
        FedCal,
        FedMatrix,
        FedOPVector,
        FedTemp,
        FedVector,
    )
    from fedcal.strategies.methods.conformal import FedConformal
    from fedcal.strategies.methods.evaluate import FedEvaluate
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
    "score_batches",
    "simulate",
    "train",
    "with_answers",
]


_HOMES = {
    "AfterTraining": "run.after_training",
    "CalibratedModel": "run.estimator",
    "Comparison": "run.comparison",
    "FederatedCalibrator": "run.estimator",
    "InProcessGrid": "run.engines.flower",
    "SimulationResult": "run.result",
    "add_answers": "clients.any_app",
    "score_batches": "clients.any_app",
    "with_answers": "clients.any_app",
    "compare": "run.comparison",
    "evaluate": "run.simulation",
    "plan": "run.plan",
    "prediction_sets": "run.simulation",
    "run_inline": "run.engines.inline",
    "simulate": "run.simulation",
    "train": "run.training",
}
"""Name that is not of `fedcal.strategies` -> its module."""


def __getattr__(name: str) -> Any:
    """Import a function or class on first use, so that `import fedcal` is fast."""
    if name == "__version__":  # pyproject.toml is its one place
        return import_module("importlib.metadata").version("fedcal")
    if name not in __all__:
        refuse("fedcal", name)
    return getattr(import_module(f"fedcal.{_HOMES.get(name, 'strategies')}"), name)


def __dir__() -> list[str]:
    return __all__
