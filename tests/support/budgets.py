"""Which methods a test of private runs is for."""

from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import exact_only

BUDGETED = tuple(name for name in STRATEGIES if name not in exact_only())
"""All that take a budget."""
