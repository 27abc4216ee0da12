"""Clients with log-normal sizes."""

import numpy as np

from fedcal.core.checks import positive
from fedcal.core.numerics import Integers


def lognormal(labels: Integers, clients: int, sigma: float, rng: np.random.Generator) -> Integers:
    """Draw the client of each row, with sizes in proportion to exp(sigma z), z ~ N(0, 1)."""
    weights = np.exp(positive("sigma of partition 'lognormal'", sigma) * rng.normal(size=clients))
    return rng.choice(clients, size=len(labels), p=weights / weights.sum())
