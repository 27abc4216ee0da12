"""Mechanisms as tests name them."""

import numpy as np

from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace, Mechanism, Noise
from fedcal.units import Bound

ADDITIVE = ("laplace", "gaussian")
"""Those whose formulas tests know by heart; what holds for all is asked in tests/contracts."""


def prefer(name: str) -> tuple[type[Mechanism], ...]:
    """What a method prefers; "least" = Laplace or Gaussian noise, whichever is less."""
    return (Laplace, Gaussian) if name == "least" else (MECHANISMS[name],)


def noise(name: str, *fields: object) -> Noise:
    return Noise(MECHANISMS[name], *fields)


def gaussian_std(bound: Bound, multiplier: float) -> np.ndarray:
    return np.repeat(Gaussian(multiplier=multiplier).scale(bound, 1), bound.lengths)


def laplace_scale(bound: Bound, epsilon: float) -> np.ndarray:
    return np.repeat(Laplace(epsilon).scale(bound, 1), bound.lengths)
