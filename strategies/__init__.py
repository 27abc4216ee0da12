"""What a server asks and learns: methods as Flower strategies."""

from __future__ import annotations

if __name__ != "fedcal.strategies":  # a second copy of every class and registry would be made
    raise ImportError(f"import fedcal.strategies, not {__name__}")

from fedcal.registry import registry
from fedcal.strategies.base import CalibrationStrategy
from fedcal.strategies.binning import FedBBQ, FedBin
from fedcal.strategies.conformal import FedConformal
from fedcal.strategies.evaluation import FedEvaluate
from fedcal.strategies.federated_averaging import DPFedAvg
from fedcal.strategies.golden_section import ECET, NLLT, AccT
from fedcal.strategies.method import Method
from fedcal.strategies.newton import (
    FedNewtonEntropy,
    FedNewtonOPVector,
    FedNewtonTop,
    FedNewtonVector,
)
from fedcal.strategies.query_binning import DPHistogram
from fedcal.strategies.recalibration import DPTS, DPPlatt
from fedcal.strategies.scaling import FedCal, FedMatrix, FedOPVector, FedVector
from fedcal.strategies.single_auc import FedAUC
from fedcal.strategies.single_metrics import FedAccuracy, FedKS
from fedcal.strategies.temperature import FedNewton, FedOneShot, FedTemp
from fedcal.strategies.training import FedSGD

__all__ = [
    "DPTS",
    "ECET",
    "NLLT",
    "STRATEGIES",
    "AccT",
    "CalibrationStrategy",
    "DPFedAvg",
    "DPHistogram",
    "DPPlatt",
    "FedAUC",
    "FedAccuracy",
    "FedBBQ",
    "FedBin",
    "FedCal",
    "FedConformal",
    "FedEvaluate",
    "FedKS",
    "FedMatrix",
    "FedNewton",
    "FedNewtonEntropy",
    "FedNewtonOPVector",
    "FedNewtonTop",
    "FedNewtonVector",
    "FedOPVector",
    "FedOneShot",
    "FedSGD",
    "FedTemp",
    "FedVector",
    "Method",
]

STRATEGIES: dict[str, type[CalibrationStrategy]] = registry(
    *(FedTemp, FedNewton, FedOneShot, FedBin, FedBBQ),
    *(FedVector, FedMatrix, FedOPVector, FedCal),
    *(FedNewtonEntropy, FedNewtonVector, FedNewtonOPVector, FedNewtonTop),
    *(AccT, NLLT, ECET, DPHistogram),
    *(DPTS, DPPlatt),
    *(FedEvaluate, FedAccuracy, FedAUC, FedKS),
    *(FedConformal, FedSGD, DPFedAvg),
)
"""Method name on the command line -> strategy."""
