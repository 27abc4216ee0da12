"""No mechanism: exact sums, and no differential privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.mechanisms.adds_nothing import AddsNothing
from fedcal.mechanisms.base import Answers, Source, Sum, Target, View
from fedcal.units.bounding import Bound, Per


@dataclass(frozen=True)
class NoNoise(AddsNothing):
    """Exact sums are released; nothing is promised."""

    name: ClassVar[str] = "none"
    noise: ClassVar[str] = "no noise"
    meaning: ClassVar[str] = "none"
    answers: ClassVar[Answers] = "nothing"
    pure: ClassVar[bool] = False
    part: ClassVar[Per | None] = None
    settles_replacement: ClassVar[bool] = False
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

    @property
    def key(self) -> tuple[float, float]:
        """Neither."""
        return 0.0, 0.0

    @property
    def event(self) -> str:
        """An exact sum."""
        return "exact sum"

    def sentence(self) -> str:
        """Nothing happens."""
        return "No noise is added"

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
