"""Base classes of partitions: their form on the command line, and the owner of each row."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fedcal.core.checks import number_in
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Integers
from fedcal.datasets import Dataset

CLIENTS = 100
"""Default number of clients, if neither the user nor the data set it."""


@dataclass(frozen=True)
class Partition(ABC):
    """A way to assign rows to clients, the value of `--partition`: `NAME` or `NAME:VALUE`.

    Subclasses set `name`, and `form` where they take a value, and are registered in
    `fedcal.partition.PARTITIONS`: options, help and files know them from there.
    """

    name: ClassVar[str]
    form: ClassVar[str] = ""
    """Form of the value after the name: "" = none."""
    example: ClassVar[str] = ""
    """A value that may follow the name."""

    @classmethod
    def of(cls, value: str) -> Self:
        """Return the partition for `name:value`; raise InputError or ValueError if invalid."""
        return cls()

    @abstractmethod
    def owners(self, data: Dataset, clients: int | None, seed: int) -> tuple[Integers, int]:
        """Return the client of each fit row, (n,), and the number of clients.

        Raises InputError if the data lack what the partition needs, or make another number of
        clients.
        """


@dataclass(frozen=True)
class DrawnPartition(Partition):
    """Partition drawn from labels and their number alone: a plan can simulate it without data."""

    @abstractmethod
    def draw(self, labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """Return the client of each row, (n,) in [0, clients)."""

    def owners(self, data: Dataset, clients: int | None, seed: int) -> tuple[Integers, int]:
        """Draw the clients from the labels of the fit rows."""
        there = clients or CLIENTS
        return self.draw(data.labels, there, stream(seed, Purpose.PARTITION)), there


@dataclass(frozen=True)
class SkewedPartition(DrawnPartition):
    """Partition drawn from a Dirichlet distribution of parameter beta."""

    form = "BETA"
    beta: float

    @classmethod
    def of(cls, value: str) -> Self:
        """Return the partition for a finite beta > 0."""
        beta = number_in(value)
        if not math.isfinite(beta) or beta <= 0:
            raise InputError(f"beta of partition '{cls.name}' must be finite and > 0, got {value}")
        return cls(beta)
