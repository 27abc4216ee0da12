"""No mechanism: exact sums, and no differential privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.bounding import Bound, Per
from fedcal.errors import InputError
from fedcal.mechanisms.base import Answers, Mechanism, Noise, Source, Sum, Target, View
from fedcal.secure_aggregation import Ring
from fedcal.types import Floats, Integers, Words


@dataclass(frozen=True)
class NoNoise(Mechanism):
    """Exact sums are released; nothing is promised."""

    name: ClassVar[str] = "none"
    noise: ClassVar[str] = "no noise"
    meaning: ClassVar[str] = "none"
    answers: ClassVar[Answers] = "nothing"
    order: ClassVar[Literal[1, 2]] = 2
    pure: ClassVar[bool] = False
    divisible: ClassVar[bool] = False
    part: ClassVar[Per | None] = None
    settles_replacement: ClassVar[bool] = False
    tailed: ClassVar[bool] = False
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Only where nothing is promised."""
        if math.isfinite(target.epsilon):
            raise InputError("without noise there is no finite epsilon")
        return cls()

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Nothing to check."""

    @classmethod
    def in_shares(cls) -> type[Mechanism] | None:
        """Nothing to share."""
        return None

    @property
    def key(self) -> tuple[float, float]:
        """Neither."""
        return 0.0, 0.0

    @property
    def event(self) -> str:
        """An exact sum."""
        return "exact sum"

    def zcdp(self, target: Target) -> float | None:
        """None: no noise."""
        return None

    def sentence(self) -> str:
        """Nothing happens."""
        return "No noise is added"

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """No noise."""
        return np.zeros(0)

    def std(self, scales: Floats, noises: float, bound: Bound) -> Floats:
        """Exact sums."""
        return np.zeros(bound.length)

    def tail(self, noises: float, alone: bool) -> float:
        """Nothing is added."""
        return 0.0

    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        """Nothing is added."""
        return None

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """No noise is of this mechanism."""
        raise InputError(f"unknown noise {cls.name!r}: it adds none")

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Nothing is added."""
        raise InputError(f"'{cls.name}' adds no noise")

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Nothing is added."""
        raise InputError(f"'{cls.name}' adds no noise")

    def draw_sum(self, total: Words, of: Sum, rng: np.random.Generator) -> Words:
        """Exact sums."""
        return total

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """The sums as they are."""
        return sums, np.zeros(len(sums))

    @classmethod
    def worst_pair(cls, bound: Bound, opposite: bool) -> tuple[Floats, Floats]:
        """Nothing is claimed that could be attacked."""
        raise InputError("a plan without privacy claims nothing that could be attacked")

    def attack(self, view: View) -> NDArray[np.float64]:
        """Nothing is claimed that could be attacked."""
        raise InputError("a plan without privacy claims nothing that could be attacked")
