"""Many methods, budgets, partitions and seeds in one table."""

from fedcal.run.comparison.run import Comparison, compare

__all__ = ["Comparison", "compare"]
