"""Mechanisms, each in its own file, and their registry.

A new mechanism is a file here and a name below; see `docs/guide/extend.md`.
"""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.mechanisms.base import Mechanism, Noise, Source, Sum, Target, View, words_of
from fedcal.mechanisms.discrete_gaussian import DiscreteGaussian
from fedcal.mechanisms.discrete_laplace import DiscreteLaplace
from fedcal.mechanisms.exponential import Exponential
from fedcal.mechanisms.gaussian import Gaussian
from fedcal.mechanisms.laplace import Laplace
from fedcal.mechanisms.no_noise import NoNoise
from fedcal.mechanisms.unary import Unary

__all__ = [
    "MECHANISMS",
    "PRIVATE",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "NoNoise",
    "Noise",
    "Source",
    "Sum",
    "Target",
    "Unary",
    "View",
    "words_of",
]

MECHANISMS: dict[str, type[Mechanism]] = registry(
    NoNoise, Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian, Exponential, Unary
)
"""Name on the command line and in files -> mechanism."""

PRIVATE = {name: law for name, law in MECHANISMS.items() if law.answers != "nothing"}
"""Mechanisms with a privacy guarantee."""
