"""Ways of finding thresholds of prediction sets, and their registry."""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.strategies.methods.quantiles.base import QuantileRule, Wanted
from fedcal.strategies.methods.quantiles.drawn import Crossing, Exact, ExponentialQuantile
from fedcal.strategies.methods.quantiles.noisy import NoisyGaps, PrefixCounts

QUANTILES: dict[str, type[QuantileRule]] = registry(
    Exact, Crossing, PrefixCounts, NoisyGaps, ExponentialQuantile
)
"""Name in settings -> rule; of those that can serve the first is the default."""

__all__ = ["QUANTILES", "QuantileRule", "Wanted"]
