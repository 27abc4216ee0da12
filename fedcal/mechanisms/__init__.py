"""Mechanisms, and their registry.

A new mechanism is a file here and a name below; see `docs/guide/extend.md`.
"""

from typing import TYPE_CHECKING

from fedcal.core.imports import Lazy, lazily, registry
from fedcal.mechanisms.additive import Gaussian, Laplace
from fedcal.mechanisms.base import Mechanism, Noise, NoNoise, Source, Sum, Target, words_of

if TYPE_CHECKING:
    from fedcal.mechanisms.choice import Exponential as Exponential
    from fedcal.mechanisms.choice import Unary as Unary
    from fedcal.mechanisms.noise_distribution import NoiseDistribution as NoiseDistribution
else:
    __getattr__ = lazily(
        __name__, ("Exponential", "NoiseDistribution", "Unary"), "noise_distribution", "choice"
    )

PRIVATE: Lazy[Mechanism] = Lazy(
    "name",
    registry(Laplace, Gaussian) | dict.fromkeys(("exponential", "unary"), f"{__name__}.choice"),
)
"""Mechanisms with a privacy guarantee."""

MECHANISMS: Lazy[Mechanism] = Lazy("name", registry(NoNoise) | PRIVATE.data)
"""Name on the command line and in files -> mechanism."""
