"""Running and showing: simulations, engines, the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedcal._neighbours import require_neighbours

require_neighbours()

if TYPE_CHECKING:
    from experiments.result import SimulationResult
    from experiments.simulation import simulate

__all__ = ["SimulationResult", "simulate"]


def __getattr__(name: str) -> Any:
    """Import on first use: `fedcal --version` need not wait for Flower and SciPy."""
    if name == "simulate":
        from experiments.simulation import simulate

        return simulate
    if name == "SimulationResult":
        from experiments.result import SimulationResult

        return SimulationResult
    raise AttributeError(f"module 'experiments' has no attribute {name!r}")
