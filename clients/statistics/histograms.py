"""Counts: histograms of predicted probabilities, by class or pooled, and rows per class."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.histogram_binning import (
    cells_of,
    count_cells,
    count_pooled,
    pooled_cells_of,
)
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.queries import ClassCounts, ClassHistograms, PooledHistograms


def class_histograms(shards: Shards, query: ClassHistograms) -> Floats:
    """P_j(b) and N_j(b) of each client (Maddock et al., Algorithm 1).

    Returns (clients, 2 * tables * bins): positives of every class first, then negatives; for two
    classes only class 1's. Unit: rows.
    """
    bins = query.bins
    cells = shards.derived(("cells", bins), lambda s: cells_of(s.probs, s.labels, bins))
    counts = count_cells(cells, bins, shards.owner, shards.clients)
    return counts.reshape(shards.clients, -1).astype(np.float64)


def pooled_histograms(shards: Shards, query: PooledHistograms) -> Floats:
    """P(b) = #{p_y in b} and N(b) = #{j != y, p_j in b} of each client: sums over classes.

    A client with m rows has m positives and m (c - 1) negatives, most of these in the first bin.

    Returns (clients, 2 * bins), P then N; of two classes N mirrors P: (clients, bins). Unit: rows.
    """
    bins = query.bins
    cells = shards.derived(
        ("pooled cells", bins), lambda s: pooled_cells_of(s.probs, s.labels, bins)
    )
    return count_pooled(cells, bins, shards.owner, shards.clients).astype(np.float64)


def class_counts(shards: Shards, query: ClassCounts) -> Floats:
    """Rows of each class, (clients, classes)."""
    c = shards.classes
    cells = shards.owner * c + shards.labels
    counts = np.bincount(cells, minlength=shards.clients * c)
    return counts.reshape(shards.clients, c).astype(np.float64)
