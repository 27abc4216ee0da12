"""Mechanisms as tests name them."""

from __future__ import annotations

import numpy as np

from fedcal.bounding import Bound
from fedcal.mechanisms import MECHANISMS, PRIVATE, Gaussian, Laplace, Mechanism, Noise

ADDITIVE = tuple(name for name, law in PRIVATE.items() if law.answers == "sum")
LAPLACIAN = tuple(name for name in ADDITIVE if PRIVATE[name].order == 1)
GAUSSIAN = tuple(name for name in ADDITIVE if PRIVATE[name].order == 2)
DIVISIBLE = tuple(name for name in ADDITIVE if PRIVATE[name].divisible)


def prefer(name: str) -> tuple[type[Mechanism], ...]:
    """What a method prefers; "least" = Laplace or Gaussian noise, whichever is less."""
    return (Laplace, Gaussian) if name == "least" else (MECHANISMS[name],)


def noise(name: str, *fields: object) -> Noise:
    return Noise(MECHANISMS[name], *fields)  # type: ignore[arg-type]


def gaussian_std(bound: Bound, multiplier: float) -> np.ndarray:
    return np.repeat(Gaussian(multiplier).scale(bound, 1), bound.lengths)


def laplace_scale(bound: Bound, epsilon: float) -> np.ndarray:
    return np.repeat(Laplace(epsilon).scale(bound, 1), bound.lengths)
