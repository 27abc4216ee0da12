"""Questions of a search for a temperature (Luo et al., C.2), or for the accuracy.

At one temperature all numbers are clipped together. At several, each temperature is a candidate for
one draw, and is clipped by itself.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedcal.clients.questions.temperature import correct, label_logits, shifted_logits
from fedcal.core.checks import InputError, integer, positive
from fedcal.core.numerics import Floats, Integers, override, row_sum
from fedcal.core.options import Positive, within
from fedcal.core.shards import Shards
from fedcal.metrics import binning
from fedcal.privacy.query import Order, Part, Summed

MOST_TEMPERATURES = 65536


@dataclass(frozen=True)
class TemperatureQuery(Summed):
    """Base class of questions at temperatures; `bound` needs a client's clip.

    Parameters
    ----------
    temperatures
        one number, or a sequence of numbers
    """

    temperatures: float | tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        value: Any = self.temperatures
        if not isinstance(value, (list, tuple, np.ndarray)):
            self._set(temperatures=positive("a temperature", value))
            return
        several = value.tolist() if isinstance(value, np.ndarray) else list(value)
        self._set(rule="per_block" if self.numbers > 1 else "per_value")
        if not isinstance(several, list) or not 1 <= len(several) <= MOST_TEMPERATURES:
            raise InputError(f"temperatures must be 1 to {MOST_TEMPERATURES:,} numbers")
        self._set(temperatures=tuple(positive("a temperature", t) for t in several))

    @property
    def each(self) -> tuple[float, ...]:
        """Temperatures as a tuple, also if there is one."""
        return self.temperatures if isinstance(self.temperatures, tuple) else (self.temperatures,)

    @property
    def numbers(self) -> int:
        """Length of the answer for one temperature."""
        return 1

    def added(self, part: Part, order: Order) -> float:
        """Return the largest L1 norm of what a row adds to the answer for one temperature."""
        return 1.0

    @abstractmethod
    def at(self, shards: Shards, t: float) -> Floats:
        """Return each client's sum at one temperature, (clients, numbers) or (clients,)."""

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Return the answers to all temperatures side by side, (clients, numbers)."""
        if not len(shards.labels):
            return np.zeros((shards.clients, sum(self.lengths())))
        return np.column_stack([self.at(shards, t) for t in self.each])

    def lengths(self) -> tuple[int, ...]:
        """Return a block for each temperature; one block for all if each has a single number."""
        many = len(self.each)
        return (self.numbers,) * many if self.numbers > 1 else (many,)


@dataclass(frozen=True)
class AccuracyGap(TemperatureQuery):
    """Sum over rows of (correct - confidence at T), in rows; a row adds less than 1."""

    kind = "accuracy_gap"
    examples = ({"temperatures": 1.7}, {"temperatures": (0.5, 1.0, 3.0)})

    def at(self, shards: Shards, t: float) -> Floats:
        """sum_i (correct_i - conf_i(T)): its root makes mean confidence equal accuracy (Acc-T).

        It rises with T. A row adds less than 1 in absolute value.
        """
        return shards.sum_rows(correct(shards) - binning.top_confidence(shifted_logits(shards) / t))


@dataclass(frozen=True)
class ClippedNLL(TemperatureQuery):
    """Sum over rows of min(-log p(y; T), nll_clip), in nats.

    Parameters
    ----------
    nll_clip
        maximum that a row adds
    """

    kind = "clipped_nll"
    signed = False
    examples = (
        {"temperatures": 1.7, "nll_clip": 10.0},
        {"temperatures": (0.5, 1.0, 3.0), "nll_clip": 2.5},
    )

    nll_clip: Positive

    def added(self, part: Part, order: Order) -> float:
        """Return the clip of the statistic itself, in nats."""
        return self.nll_clip

    def at(self, shards: Shards, t: float) -> Floats:
        """sum_i min(-log p_i(y_i; T), clip), in nats (NLL-T)."""
        z, of_label = shifted_logits(shards) / t, label_logits(shards) / t
        return shards.sum_rows(np.minimum(np.log(row_sum(np.exp(z))) - of_label, self.nll_clip))


@dataclass(frozen=True)
class CalibrationGaps(TemperatureQuery):
    """Sum of (correct - confidence at T) over the rows of each bin of the confidence, in rows.

    Parameters
    ----------
    bins
        of equal width
    """

    kind = "calibration_gaps"
    examples = ({"temperatures": 1.7, "bins": 15}, {"temperatures": (0.5, 1.0, 3.0), "bins": 4})

    bins: Annotated[int, within(1, binning.MOST_BINS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("points x bins", len(self.each) * self.bins, 1, binning.MOST_BINS)

    @property
    @override
    def numbers(self) -> int:
        return self.bins

    def at(self, shards: Shards, t: float) -> Floats:
        """sum_{i in b} (correct_i - conf_i(T)) of each bin b of the confidence at T (ECE-T).

        A row is in one bin, so it adds less than 1 in L1 norm.
        """
        confidence = binning.top_confidence(shifted_logits(shards) / t)
        cells = binning.bin_index(confidence, self.bins)
        return shards.sum_rows(correct(shards) - confidence, cells, self.bins)
