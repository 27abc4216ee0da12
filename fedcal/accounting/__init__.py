"""Noise for a privacy budget: tight accounting, and the source paper's, which is looser."""

from fedcal.accounting.gaussian import (
    check_delta,
    check_epsilon,
    check_multiplier,
    check_rate,
    check_rounds,
    exponential_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
    poisson_gaussian_epsilon,
)
from fedcal.accounting.stages import (
    AnyStage,
    Guarantee,
    Stage,
    composed_delta,
    composed_epsilon,
)

__all__ = [
    "AnyStage",
    "Guarantee",
    "Stage",
    "check_delta",
    "check_epsilon",
    "check_multiplier",
    "check_rate",
    "check_rounds",
    "composed_delta",
    "composed_epsilon",
    "exponential_epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_multiplier",
    "poisson_gaussian_epsilon",
]
