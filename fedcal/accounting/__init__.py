"""Noise for a privacy budget: tight accounting, and the source paper's, which is looser."""

from fedcal.accounting.gaussian import (
    check_delta,
    check_epsilon,
    check_multiplier,
    check_rate,
    exponential_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
    poisson_gaussian_epsilon,
)
