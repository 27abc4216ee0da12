"""Mechanisms, and their registry.

A new mechanism is a file here and a name below; see `docs/guide/extend.md`.
"""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.mechanisms.additive import Gaussian, Laplace
from fedcal.mechanisms.base import Mechanism, Noise, NoNoise, Source, Sum, Target, words_of
from fedcal.mechanisms.choice import Exponential, Unary
from fedcal.mechanisms.noise_law import NoiseLaw

__all__ = [
    "FORMER",
    "MECHANISMS",
    "PRIVATE",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "NoNoise",
    "Noise",
    "NoiseLaw",
    "Source",
    "Sum",
    "Target",
    "Unary",
    "words_of",
]

MECHANISMS: dict[str, type[Mechanism]] = registry(NoNoise, Laplace, Gaussian, Exponential, Unary)
"""Name on the command line and in files -> mechanism."""

PRIVATE = {name: one for name, one in MECHANISMS.items() if one.answers != "nothing"}
"""Mechanisms with a privacy guarantee."""

FORMER = {"discrete-laplace": Laplace.name, "discrete-gaussian": Gaussian.name}
"""Names that configs, policies and records of earlier versions may have -> the name now."""
