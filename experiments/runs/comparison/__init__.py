"""Many methods, budgets, partitions and seeds in one table."""

from __future__ import annotations

from fedcal.experiments.runs.comparison.run import Comparison, compare

__all__ = ["Comparison", "compare"]
