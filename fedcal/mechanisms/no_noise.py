"""Exact sums, without noise and without differential privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, override
from fedcal.mechanisms.base import Answers, Mechanism, Source, Sum, Target
from fedcal.units.bounding import Bound


@dataclass(frozen=True)
class NoNoise(Mechanism):
    """Release of exact sums, without any guarantee."""

    name: ClassVar[str] = "none"
    noise: ClassVar[str] = "no noise"
    meaning: ClassVar[str] = "none"
    answers: ClassVar[Answers] = "nothing"
    pure: ClassVar[bool] = False
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Return the mechanism; InputError if the epsilon is finite."""
        if math.isfinite(target.epsilon):
            raise InputError("without noise there is no finite epsilon")
        return cls()

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Accept every bound: there is nothing to check."""

    @property
    @override
    def event(self) -> str:
        return "exact sum"

    @override
    def sentence(self) -> str:
        return "No noise is added"

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the sums as they are, and a std of 0."""
        return sums, np.zeros(len(sums))
