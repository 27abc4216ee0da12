"""Noise for a privacy budget: tight accounting, and the source paper's, which is looser."""

from fedcal.accounting.gaussian import check_delta as check_delta
from fedcal.accounting.gaussian import check_epsilon as check_epsilon
from fedcal.accounting.gaussian import check_multiplier as check_multiplier
from fedcal.accounting.gaussian import check_rate as check_rate
from fedcal.accounting.gaussian import exponential_epsilon as exponential_epsilon
from fedcal.accounting.gaussian import gaussian_delta as gaussian_delta
from fedcal.accounting.gaussian import gaussian_epsilon as gaussian_epsilon
from fedcal.accounting.gaussian import gaussian_multiplier as gaussian_multiplier
from fedcal.accounting.gaussian import poisson_gaussian_epsilon as poisson_gaussian_epsilon
