"""Running and showing: simulations, engines, the command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "fedcal.experiments":  # a second copy of every class and registry would be made
    raise ImportError(f"import fedcal.experiments, not {__name__}")

if TYPE_CHECKING:
    from fedcal.run.after_training import AfterTraining
    from fedcal.run.comparison import Comparison, compare
    from fedcal.run.engines.flower import InProcessGrid
    from fedcal.run.engines.inline import run_inline
    from fedcal.run.estimator import CalibratedModel, FederatedCalibrator
    from fedcal.run.plan import plan
    from fedcal.run.result import SimulationResult
    from fedcal.run.simulation import evaluate, prediction_sets, simulate
    from fedcal.run.training import train

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
    "AfterTraining": "fedcal.run.after_training",
    "CalibratedModel": "fedcal.run.estimator",
    "FederatedCalibrator": "fedcal.run.estimator",
    "InProcessGrid": "fedcal.run.engines.flower",
    "Comparison": "fedcal.run.comparison",
    "SimulationResult": "fedcal.run.result",
    "compare": "fedcal.run.comparison",
    "evaluate": "fedcal.run.simulation",
    "plan": "fedcal.run.plan",
    "prediction_sets": "fedcal.run.simulation",
    "run_inline": "fedcal.run.engines.inline",
    "simulate": "fedcal.run.simulation",
    "train": "fedcal.run.training",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `fedcal --version` need not wait for Flower and SciPy."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedcal.experiments' has no attribute {name!r}")
