"""Ways of finding thresholds of prediction sets: one class in a file of its own each."""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.strategies.methods.quantiles.base import QuantileRule, Wanted
from fedcal.strategies.methods.quantiles.crossing import Crossing
from fedcal.strategies.methods.quantiles.exact import Exact
from fedcal.strategies.methods.quantiles.exponential import ExponentialQuantile
from fedcal.strategies.methods.quantiles.gaps import NoisyGaps
from fedcal.strategies.methods.quantiles.prefix import PrefixCounts
from fedcal.strategies.methods.quantiles.unary import EncodedBuckets

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
