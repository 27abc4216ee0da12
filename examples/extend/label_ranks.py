"""Ranks of the labels in the model's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedcal.core.numerics import Floats, Integers
from fedcal.core.options import within
from fedcal.core.shards import Shards
from fedcal.privacy.query import Order, Part, Query
from fedcal.units import Bound


@dataclass(frozen=True)
class LabelRanks(Query):
    """Numbers of rows whose label is the model's first, second, ... choice, and of all others.

    `bound` accepts one clip: the most a client adds to all counts together, in rows.

    Parameters
    ----------
    most : the largest rank with its own count
    """

    kind = "label_ranks"
    signed = False
    examples = ({"most": 1}, {"most": 2})

    most: Annotated[int, within(1, 1000)]

    def lengths(self) -> tuple[int, ...]:
        """Return the length of one block for all counts."""
        return (self.most + 1,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound of all counts: a client's clip, or the single 1 of a row."""
        norm = clips[0] if self.takes_clips(part, clips, 1) else 1.0
        return Bound(self.lengths(), (norm,), order=order)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Return the number of rows with their label at each rank, (clients, most + 1)."""
        own = np.take_along_axis(shards.logits, shards.labels[:, None], axis=1)
        rank = np.minimum((shards.logits > own).sum(axis=1), self.most)
        width = self.most + 1
        counts = np.bincount(shards.owner * width + rank, minlength=shards.clients * width)
        return counts.reshape(shards.clients, width).astype(np.float64)
