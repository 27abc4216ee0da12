"""Running and showing: simulations, engines, the command line."""

from __future__ import annotations

from fedcal._neighbours import require_neighbours

require_neighbours()

from experiments.result import SimulationResult  # noqa: E402
from experiments.simulation import simulate  # noqa: E402

__all__ = ["SimulationResult", "simulate"]
