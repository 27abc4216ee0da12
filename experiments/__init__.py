"""Running and showing: simulations, engines, the command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcal._neighbours import require_neighbours

require_neighbours()

if TYPE_CHECKING:
    from experiments.comparison import Comparison, compare
    from experiments.planner.plan import plan
    from experiments.result import SimulationResult
    from experiments.simulation import simulate

__all__ = ["Comparison", "SimulationResult", "compare", "plan", "simulate"]

_HOMES = {
    "Comparison": "experiments.comparison",
    "SimulationResult": "experiments.result",
    "compare": "experiments.comparison",
    "plan": "experiments.planner.plan",
    "simulate": "experiments.simulation",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `fedcal --version` need not wait for Flower and SciPy."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'experiments' has no attribute {name!r}")
