"""Methods, which ask and learn from sums, as Flower strategies."""

if __name__ != "fedcal.strategies":  # a second copy of every class and registry would be made
    raise ImportError(f"import fedcal.strategies, not {__name__}")

from fedcal.core.checks import InputError
from fedcal.core.imports import registry
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import Method
from fedcal.strategies.methods.averaging import FedCal, FedMatrix, FedOPVector, FedTemp, FedVector
from fedcal.strategies.methods.conformal import FedConformal
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.methods.histograms import DPHistogram, FedBBQ, FedBin
from fedcal.strategies.methods.newton import FedNewton, FedNewtonEntropy, FedNewtonVector
from fedcal.strategies.methods.prior import FedPrior
from fedcal.strategies.methods.search import ECET, NLLT, AccT, FedOneShot
from fedcal.strategies.methods.training import DPTS, DPFedAvg, DPPlatt, FedAvg, FedSGD

__all__ = ["STRATEGIES", "FederatedStrategy", "Method", "register"]

STRATEGIES: dict[str, type[FederatedStrategy]] = registry(
    *(FedTemp, FedNewton, FedOneShot, FedBin, FedBBQ),
    *(FedVector, FedMatrix, FedOPVector, FedCal),
    *(FedNewtonEntropy, FedNewtonVector),
    *(AccT, NLLT, ECET, DPHistogram),
    *(DPTS, DPPlatt),
    *(FedEvaluate, FedConformal, FedPrior, FedSGD, DPFedAvg, FedAvg),
)
"""Method name on the command line -> strategy."""


def register(method: type[FederatedStrategy]) -> str:
    """Register a method of another package, so that `module:Class` names it everywhere.

    Returns
    -------
    str
        that name

    Raises
    ------
    InputError
        If it is no complete method.
    """
    if not (isinstance(method, type) and issubclass(method, FederatedStrategy)):
        raise InputError(f"{method!r:.80} is not a method: a subclass of FederatedStrategy")
    name = f"{method.__module__}:{method.__qualname__}"
    try:
        STRATEGIES[name] = registry(method)[method.name]
    except TypeError as error:
        raise InputError(f"method {name}: {error}") from None
    return name
