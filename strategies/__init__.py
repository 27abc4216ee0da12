"""What a server asks and learns: calibration methods as Flower strategies."""

from __future__ import annotations

from fedcal._neighbours import require_neighbours

require_neighbours("strategies")

from strategies.base import CalibrationStrategy  # noqa: E402
from strategies.binning import FedBBQ, FedBin  # noqa: E402
from strategies.golden_section import ECET, NLLT, AccT  # noqa: E402
from strategies.newton import (  # noqa: E402
    FedNewtonEntropy,
    FedNewtonOPVector,
    FedNewtonVector,
)
from strategies.query_binning import DPHistogram  # noqa: E402
from strategies.scaling import FedCal, FedMatrix, FedOPVector, FedVector  # noqa: E402
from strategies.temperature import FedNewton, FedOneShot, FedTemp  # noqa: E402

__all__ = [
    "ECET",
    "NLLT",
    "STRATEGIES",
    "AccT",
    "CalibrationStrategy",
    "DPHistogram",
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
        *(AccT, NLLT, ECET, DPHistogram),
    )
}
"""Method name on the command line -> strategy."""
