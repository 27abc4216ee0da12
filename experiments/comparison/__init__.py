"""Many methods, budgets, partitions and seeds in one table."""

from __future__ import annotations

from experiments.comparison.result import Comparison
from experiments.comparison.run import compare

__all__ = ["Comparison", "compare"]
