"""Running and showing: simulations, engines, the command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "fedcal.experiments":  # a second copy of every class and registry would be made
    raise ImportError(f"import fedcal.experiments, not {__name__}")

if TYPE_CHECKING:
    from fedcal.experiments.deploy.after_training import AfterTraining
    from fedcal.experiments.runs.comparison import Comparison, compare
    from fedcal.experiments.runs.engines.flower import InProcessGrid
    from fedcal.experiments.runs.engines.inline import run_inline
    from fedcal.experiments.runs.estimator import CalibratedModel, FederatedCalibrator
    from fedcal.experiments.runs.plan import plan
    from fedcal.experiments.runs.result import SimulationResult
    from fedcal.experiments.runs.simulation import evaluate, prediction_sets, simulate
    from fedcal.experiments.training.run import train

__all__ = [
    "AfterTraining",
    "CalibratedModel",
    "Comparison",
    "FederatedCalibrator",
    "InProcessGrid",
    "SimulationResult",
    "compare",
    "evaluate",
    "plan",
    "prediction_sets",
    "run_inline",
    "simulate",
    "train",
]

_HOMES = {
    "AfterTraining": "fedcal.experiments.deploy.after_training",
    "CalibratedModel": "fedcal.experiments.runs.estimator",
    "FederatedCalibrator": "fedcal.experiments.runs.estimator",
    "InProcessGrid": "fedcal.experiments.runs.engines.flower",
    "Comparison": "fedcal.experiments.runs.comparison",
    "SimulationResult": "fedcal.experiments.runs.result",
    "compare": "fedcal.experiments.runs.comparison",
    "evaluate": "fedcal.experiments.runs.simulation",
    "plan": "fedcal.experiments.runs.plan",
    "prediction_sets": "fedcal.experiments.runs.simulation",
    "run_inline": "fedcal.experiments.runs.engines.inline",
    "simulate": "fedcal.experiments.runs.simulation",
    "train": "fedcal.experiments.training.run",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `fedcal --version` need not wait for Flower and SciPy."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedcal.experiments' has no attribute {name!r}")
