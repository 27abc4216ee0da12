"""How much noise a budget asks for: `gaussian` (tight), `zcdp` (the source paper's, looser)."""

from __future__ import annotations

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

__all__ = [
    "check_delta",
    "check_epsilon",
    "check_multiplier",
    "check_rate",
    "check_rounds",
    "exponential_epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_multiplier",
    "poisson_gaussian_epsilon",
]
