"""fedcal: private, federated calibration of classifiers.

The science, without Flower: rows, calibrators, metrics, secure aggregation, privacy. Above it
`fedcal.clients` computes contributions and `fedcal.strategies` asks and learns (their folders lie
beside this one; `setup.py` maps them); `fedcal.results` shows, `fedcal.run` simulates and compares,
`fedcal.sites` is about real sites, `fedcal.cli` is the command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcal.core.checks import BudgetExceeded as BudgetExceeded
from fedcal.core.checks import FedcalError as FedcalError
from fedcal.core.checks import InputError as InputError
from fedcal.core.checks import Interrupted as Interrupted
from fedcal.core.checks import RoundFailed as RoundFailed
from fedcal.core.checks import TooLittle as TooLittle
from fedcal.core.checks import refuse

if TYPE_CHECKING:
    from fedcal.clients.any_app import add_answers as add_answers
    from fedcal.clients.any_app import score_batches as score_batches
    from fedcal.clients.any_app import with_answers as with_answers
    from fedcal.run.after_training import AfterTraining as AfterTraining
    from fedcal.run.comparison import Comparison as Comparison
    from fedcal.run.comparison import compare as compare
    from fedcal.run.engines.flower import InProcessGrid as InProcessGrid
    from fedcal.run.engines.inline import run_inline as run_inline
    from fedcal.run.estimator import CalibratedModel as CalibratedModel
    from fedcal.run.estimator import FederatedCalibrator as FederatedCalibrator
    from fedcal.run.plan import plan as plan
    from fedcal.run.result import SimulationResult as SimulationResult
    from fedcal.run.simulation import evaluate as evaluate
    from fedcal.run.simulation import prediction_sets as prediction_sets
    from fedcal.run.simulation import simulate as simulate
    from fedcal.run.training import train as train
    from fedcal.strategies.base import FederatedStrategy as FederatedStrategy
    from fedcal.strategies.methods.averaging import FedCal as FedCal
    from fedcal.strategies.methods.averaging import FedMatrix as FedMatrix
    from fedcal.strategies.methods.averaging import FedOPVector as FedOPVector
    from fedcal.strategies.methods.averaging import FedTemp as FedTemp
    from fedcal.strategies.methods.averaging import FedVector as FedVector
    from fedcal.strategies.methods.conformal import FedConformal as FedConformal
    from fedcal.strategies.methods.evaluate import FedEvaluate as FedEvaluate
    from fedcal.strategies.methods.histograms import DPHistogram as DPHistogram
    from fedcal.strategies.methods.histograms import FedBBQ as FedBBQ
    from fedcal.strategies.methods.histograms import FedBin as FedBin
    from fedcal.strategies.methods.newton import FedNewton as FedNewton
    from fedcal.strategies.methods.newton import FedNewtonEntropy as FedNewtonEntropy
    from fedcal.strategies.methods.newton import FedNewtonVector as FedNewtonVector
    from fedcal.strategies.methods.search import ECET as ECET
    from fedcal.strategies.methods.search import NLLT as NLLT
    from fedcal.strategies.methods.search import AccT as AccT
    from fedcal.strategies.methods.search import FedOneShot as FedOneShot
    from fedcal.strategies.methods.training import DPTS as DPTS
    from fedcal.strategies.methods.training import DPFedAvg as DPFedAvg
    from fedcal.strategies.methods.training import DPPlatt as DPPlatt
    from fedcal.strategies.methods.training import FedAvg as FedAvg
    from fedcal.strategies.methods.training import FedSGD as FedSGD

__version__: str
_MODULES = {
    "clients.any_app": ("add_answers", "score_batches", "with_answers"),
    "run.after_training": ("AfterTraining",),
    "run.comparison": ("Comparison", "compare"),
    "run.engines.flower": ("InProcessGrid",),
    "run.engines.inline": ("run_inline",),
    "run.estimator": ("CalibratedModel", "FederatedCalibrator"),
    "run.plan": ("plan",),
    "run.result": ("SimulationResult",),
    "run.simulation": ("evaluate", "prediction_sets", "simulate"),
    "run.training": ("train",),
    "strategies": (
        *("FederatedStrategy", "FedTemp", "FedVector", "FedMatrix", "FedOPVector", "FedCal"),
        *("FedConformal", "FedEvaluate", "DPHistogram", "FedBBQ", "FedBin"),
        *("FedNewton", "FedNewtonEntropy", "FedNewtonVector", "ECET", "NLLT", "AccT"),
        *("FedOneShot", "DPTS", "DPFedAvg", "DPPlatt", "FedAvg", "FedSGD"),
    ),
}
"""Module -> its public names."""

_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_ERRORS = ("BudgetExceeded", "FedcalError", "InputError", "Interrupted", "RoundFailed", "TooLittle")
__all__ = sorted([*_HOMES, *_ERRORS, "__version__"])


def __getattr__(name: str) -> Any:
    """Import a function or class on first use, so that `import fedcal` is fast."""
    if name == "__version__":  # pyproject.toml is its one place
        return import_module("importlib.metadata").version("fedcal")
    if name not in _HOMES:
        refuse("fedcal", name)
    return getattr(import_module(f"fedcal.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
