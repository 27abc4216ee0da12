"""Ways of finding thresholds of prediction sets: one class in a file of its own each."""

from __future__ import annotations

from fedcal.registry import registry
from fedcal.strategies.quantiles.base import QuantileRule, Wanted
from fedcal.strategies.quantiles.crossing import Crossing
from fedcal.strategies.quantiles.exact import Exact
from fedcal.strategies.quantiles.exponential import ExponentialQuantile
from fedcal.strategies.quantiles.gaps import NoisyGaps
from fedcal.strategies.quantiles.prefix import PrefixCounts
from fedcal.strategies.quantiles.unary import EncodedBuckets

QUANTILES: dict[str, type[QuantileRule]] = registry(
    Exact, Crossing, PrefixCounts, EncodedBuckets, NoisyGaps, ExponentialQuantile
)
"""Name in settings -> rule; of those that can serve the first is the default."""

__all__ = [
    "QUANTILES",
    "Crossing",
    "EncodedBuckets",
    "Exact",
    "ExponentialQuantile",
    "NoisyGaps",
    "PrefixCounts",
    "QuantileRule",
    "Wanted",
]
