"""Mechanisms, and their registry.

A new mechanism is a file here and a name below; see `docs/guide/extend.md`.
"""

from fedcal.core.registry import registry
from fedcal.mechanisms.additive import Gaussian as Gaussian
from fedcal.mechanisms.additive import Laplace as Laplace
from fedcal.mechanisms.base import Mechanism as Mechanism
from fedcal.mechanisms.base import Noise as Noise
from fedcal.mechanisms.base import NoNoise as NoNoise
from fedcal.mechanisms.base import Source as Source
from fedcal.mechanisms.base import Sum as Sum
from fedcal.mechanisms.base import Target as Target
from fedcal.mechanisms.base import words_of as words_of
from fedcal.mechanisms.choice import Exponential as Exponential
from fedcal.mechanisms.choice import Unary as Unary
from fedcal.mechanisms.noise_law import NoiseLaw as NoiseLaw

MECHANISMS: dict[str, type[Mechanism]] = registry(NoNoise, Laplace, Gaussian, Exponential, Unary)
"""Name on the command line and in files -> mechanism."""

PRIVATE = {name: one for name, one in MECHANISMS.items() if one.answers != "nothing"}
"""Mechanisms with a privacy guarantee."""

FORMER = {"discrete-laplace": Laplace.name, "discrete-gaussian": Gaussian.name}
"""Names that configs, policies and records of earlier versions may have -> the name now."""
