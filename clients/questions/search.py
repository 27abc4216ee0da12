"""Questions of a search for a temperature (Luo et al., C.2), or for the accuracy."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedcal.clients.questions.temperature import correct, label_logits, shifted_logits
from fedcal.core.numerics import Floats, Integers, override, row_sum
from fedcal.core.options import Positive, within
from fedcal.core.shards import Shards
from fedcal.metrics import binning
from fedcal.privacy.query import Order, Part, Summed


@dataclass(frozen=True)
class TemperatureQuery(Summed):
    """Base class of questions at a temperature; `bound` needs a client's clip.

    Parameters
    ----------
    temperatures
        the one that logits are divided by (the name is part of the seed of the noise)
    """

    temperatures: Positive

    def lengths(self) -> tuple[int, ...]:
        """Return one block with all numbers."""
        return (1,)

    def added(self, part: Part, order: Order) -> float:
        """Return the largest L1 norm of what a row adds."""
        return 1.0

    @abstractmethod
    def at(self, shards: Shards) -> Floats:
        """Return each client's sum at a temperature, (clients, numbers) or (clients,)."""

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Return the answers, (clients, numbers)."""
        if not len(shards.labels):
            return np.zeros((shards.clients, sum(self.lengths())))
        return self.at(shards).reshape(shards.clients, -1)


@dataclass(frozen=True)
class AccuracyGap(TemperatureQuery):
    """Sum over rows of (correct - confidence at T), in rows; a row adds less than 1."""

    kind = "accuracy_gap"
    examples = ({"temperatures": 1.7}, {"temperatures": 0.5})

    def at(self, shards: Shards) -> Floats:
        """sum_i (correct_i - conf_i(T)): its root makes mean confidence equal accuracy (Acc-T).

        It rises with T. A row adds less than 1 in absolute value.
        """
        confidence = binning.top_confidence(shifted_logits(shards) / self.temperatures)
        return shards.sum_rows(correct(shards) - confidence)


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
    examples = ({"temperatures": 1.7, "nll_clip": 10.0}, {"temperatures": 0.5, "nll_clip": 2.5})

    nll_clip: Positive

    def added(self, part: Part, order: Order) -> float:
        """Return the clip of the statistic itself, in nats."""
        return self.nll_clip

    def at(self, shards: Shards) -> Floats:
        """sum_i min(-log p_i(y_i; T), clip), in nats (NLL-T)."""
        z, of_label = (part(shards) / self.temperatures for part in (shifted_logits, label_logits))
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
    examples = ({"temperatures": 1.7, "bins": 15}, {"temperatures": 0.5, "bins": 4})

    bins: Annotated[int, within(1, binning.MOST_BINS)]

    @override
    def lengths(self) -> tuple[int, ...]:
        return (self.bins,)

    def at(self, shards: Shards) -> Floats:
        """sum_{i in b} (correct_i - conf_i(T)) of each bin b of the confidence at T (ECE-T).

        A row is in one bin, so it adds less than 1 in L1 norm.
        """
        confidence = binning.top_confidence(shifted_logits(shards) / self.temperatures)
        cells = binning.bin_index(confidence, self.bins)
        return shards.sum_rows(correct(shards) - confidence, cells, self.bins)
