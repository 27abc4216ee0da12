"""Counts: histograms of probabilities, rows per class, correct and wrong by confidence.

Luo et al. (C.2.3) send (correct, total), which one row changes by 2; (correct, wrong) is ours.
"""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.histogram_binning import (
    cells_of,
    count_cells,
    count_pooled,
    outcome_cells,
    pooled_cells_of,
)
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.queries import BinOutcomes, ClassCounts, ClassHistograms, OutcomeCell, PooledHistograms


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


def bin_outcomes(shards: Shards, query: BinOutcomes) -> Floats:
    """Correct predictions of each bin of the confidence, then wrong ones or all.

    A row adds 1 to one number, or with "correct_total" to up to two.

    Returns (clients, 2 * bins) in rows.
    """
    bins = query.bins
    cells = shards.owner * (2 * bins) + _cells(shards, bins)
    counts = np.bincount(cells, minlength=shards.clients * 2 * bins)
    out = counts.reshape(shards.clients, 2 * bins).astype(np.float64)
    if query.counts == "correct_total":
        out[:, bins:] += out[:, :bins]
    return out


def outcome_cell(shards: Shards, query: OutcomeCell) -> Floats:
    """Return the cell of `bin_outcomes` of one row of each client.

    For optimal unary encoding: whichever cell it is, the encoding hides it. The row is drawn
    uniformly by a hash of `seed` and of the rows (`Shards.drawn`), so that the answer does not
    depend on who else is asked, and who knows the seed alone does not know the row. No guarantee
    rests on that, and no amplification by this sampling is claimed. It is no sum over
    rows: one row may move the 1 from any cell to any other.

    Returns (clients, 2 * bins): a single 1; zeros if the client has no rows.
    """
    cells = _cells(shards, query.bins)
    return one_of_each(shards, cells, 2 * query.bins, query.seed)


def one_of_each(shards: Shards, cells: Integers, numbers: int, seed: int) -> Floats:
    """Return a 1 in the cell of one row of each client (`Shards.drawn`), (clients, numbers)."""
    out, first = np.zeros((shards.clients, numbers)), shards.drawn(seed)
    out[shards.owner[first], cells[first]] = 1.0
    return out


def _cells(shards: Shards, bins: int) -> Integers:
    return shards.derived(("outcomes", bins), lambda s: outcome_cells(s.probs, s.labels, bins))
