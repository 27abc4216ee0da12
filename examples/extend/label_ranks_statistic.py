"""Ranks of the labels in the model's order."""

from __future__ import annotations

import numpy as np

from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.privacy.query import LabelRanks


def label_ranks(shards: Shards, query: LabelRanks) -> Floats:
    """Return the number of rows with their label at each rank, (clients, most + 1)."""
    own = np.take_along_axis(shards.logits, shards.labels[:, None], axis=1)
    rank = np.minimum((shards.logits > own).sum(axis=1), query.most)
    width = query.most + 1
    counts = np.bincount(shards.owner * width + rank, minlength=shards.clients * width)
    return counts.reshape(shards.clients, width).astype(np.float64)
