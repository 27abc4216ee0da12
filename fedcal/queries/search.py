"""What a search over temperatures asks for, at one temperature or at several (Luo et al., C.2).

At one temperature all numbers are clipped together. At several each temperature is a candidate of
its own, for one draw among them, and is clipped by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from fedcal.core.checks import positive
from fedcal.core.errors import InputError
from fedcal.metrics.binning import MOST_BINS
from fedcal.queries.base import Order, Part, Positive, Query, within
from fedcal.units.bounding import Bound, Rule

MOST_TEMPERATURES = 65536


@dataclass(frozen=True)
class TemperatureQuery(Query):
    """What the three share. `bound` takes a client's clip, in the units of the answer.

    Parameters
    ----------
    temperatures
        one number, or a sequence of them
    """

    temperatures: float | tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.temperatures
        if not isinstance(given, (list, tuple, np.ndarray)):
            self._set(temperatures=positive("a temperature", given))
            return
        several = given.tolist() if isinstance(given, np.ndarray) else list(given)
        if not isinstance(several, list) or not 1 <= len(several) <= MOST_TEMPERATURES:
            raise InputError(f"temperatures must be 1 to {MOST_TEMPERATURES:,} numbers")
        self._set(temperatures=tuple(positive("a temperature", t) for t in several))

    @property
    def each(self) -> tuple[float, ...]:
        """All that are asked about."""
        return self.temperatures if isinstance(self.temperatures, tuple) else (self.temperatures,)

    @property
    def numbers(self) -> int:
        """Of the answer to one temperature."""
        return 1

    @property
    @abstractmethod
    def row_bound(self) -> float:
        """What one row adds to the answer to one temperature at most, in L1 norm."""

    def lengths(self) -> tuple[int, ...]:
        """A block for each temperature; of single numbers one for all."""
        many = len(self.each)
        return (self.numbers,) * many if self.numbers > 1 else (many,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Each temperature's numbers to a client's clip, or to what a row adds."""
        norm = clips[0] if self.takes(part, clips, 1) else self.row_bound
        lengths, rule = self.lengths(), "joint"
        if isinstance(self.temperatures, tuple):
            rule = "per_block" if self.numbers > 1 else "per_value"
        named: Rule = rule  # type: ignore[assignment]
        return Bound(lengths, (norm,) * len(lengths), named, order)


@dataclass(frozen=True)
class AccuracyGap(TemperatureQuery):
    """Sum over rows of (correct - confidence at T), in rows; a row adds less than 1."""

    kind = "accuracy_gap"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"temperatures": 1.7},
        {"temperatures": (0.5, 1.0, 3.0)},
    )

    @property
    def row_bound(self) -> float:
        """One row."""
        return 1.0


@dataclass(frozen=True)
class ClippedNLL(TemperatureQuery):
    """Sum over rows of min(-log p(y; T), nll_clip), in nats.

    Parameters
    ----------
    nll_clip
        what a row adds at most
    """

    kind = "clipped_nll"
    signed = False
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"temperatures": 1.7, "nll_clip": 10.0},
        {"temperatures": (0.5, 1.0, 3.0), "nll_clip": 2.5},
    )

    nll_clip: Positive

    @property
    def row_bound(self) -> float:
        """The statistic's own clip."""
        return self.nll_clip


@dataclass(frozen=True)
class CalibrationGaps(TemperatureQuery):
    """Sum of (correct - confidence at T) over the rows of each bin of the confidence, in rows.

    Parameters
    ----------
    bins
        of equal width
    """

    kind = "calibration_gaps"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"temperatures": 1.7, "bins": 15},
        {"temperatures": (0.5, 1.0, 3.0), "bins": 4},
    )

    bins: Annotated[int, within(1, MOST_BINS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.each) * self.bins > MOST_BINS:
            raise InputError(f"points x bins must be at most {MOST_BINS:,} numbers of a client")

    @property
    def numbers(self) -> int:
        """One for each bin."""
        return self.bins

    @property
    def row_bound(self) -> float:
        """A row is in one bin, and adds less than 1 there."""
        return 1.0
