"""Counts of correct and wrong predictions by the model's confidence.

Luo et al. (C.2.3) send (correct, total), which one row changes by 2; (correct, wrong) is ours.
"""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.top_label import outcome_cells
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.queries import BinOutcomes, OutcomeCell


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
