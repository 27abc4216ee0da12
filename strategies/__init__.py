"""What a server asks and learns: calibration methods as Flower strategies."""

from __future__ import annotations

from fedcal._neighbours import require_neighbours

require_neighbours("strategies")

from strategies.base import CalibrationStrategy  # noqa: E402
from strategies.binning import FedBBQ, FedBin  # noqa: E402
from strategies.newton import (  # noqa: E402
    FedNewtonEntropy,
    FedNewtonOPVector,
    FedNewtonVector,
)
from strategies.scaling import FedCal, FedMatrix, FedOPVector, FedVector  # noqa: E402
from strategies.temperature import FedNewton, FedOneShot, FedTemp  # noqa: E402

__all__ = [
    "STRATEGIES",
    "CalibrationStrategy",
    "FedBBQ",
    "FedBin",
    "FedCal",
    "FedMatrix",
    "FedNewton",
    "FedNewtonEntropy",
    "FedNewtonOPVector",
    "FedNewtonVector",
    "FedOPVector",
    "FedOneShot",
    "FedTemp",
    "FedVector",
]

STRATEGIES: dict[str, type[CalibrationStrategy]] = {
    s.name: s
    for s in (
        *(FedTemp, FedNewton, FedOneShot, FedBin, FedBBQ),
        *(FedVector, FedMatrix, FedOPVector, FedCal),
        *(FedNewtonEntropy, FedNewtonVector, FedNewtonOPVector),
    )
}
"""Method name on the command line -> strategy."""
