"""Clients with log-normal sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedcal.core.checks import positive
from fedcal.core.numerics import Integers
from fedcal.partition import DrawnPartition


@dataclass(frozen=True)
class Lognormal(DrawnPartition):
    """Partition with client sizes in proportion to exp(sigma z), z ~ N(0, 1)."""

    name, form, example = "lognormal", "SIGMA", "1"
    sigma: float

    @classmethod
    def of(cls, value: str) -> Self:
        """Return the partition with a finite sigma > 0."""
        return cls(positive("sigma of partition 'lognormal'", float(value)))

    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """Draw the client of each row."""
        weights = np.exp(self.sigma * rng.normal(size=clients))
        return rng.choice(clients, size=len(labels), p=weights / weights.sum())
