"""Counts: class histograms of predicted probabilities, and rows per class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcal.calibrators.histogram import cells_of, count_cells
from fedcal.shards import Shards
from fedcal.types import Floats


def class_histograms(shards: Shards, params: Mapping[str, Any]) -> Floats:
    """P_j(b) and N_j(b) of each client (Maddock et al., Algorithm 1).

    Parameters
    ----------
    params : `bins`, equal-width bins of each predicted probability

    Returns
    -------
    (clients, 2 * tables * bins): positives of every class first, then negatives; for two
    classes only class 1's. Unit: rows.
    """
    bins = int(params["bins"])
    cells = shards.derived(("cells", bins), lambda s: cells_of(s.logits, s.labels, bins))
    counts = count_cells(cells, bins, shards.owner, shards.clients)
    return counts.reshape(shards.clients, -1).astype(np.float64)


def class_counts(shards: Shards, params: Mapping[str, Any]) -> Floats:
    """Rows of each class, (clients, classes)."""
    c = shards.classes
    cells = shards.owner * c + shards.labels
    counts = np.bincount(cells, minlength=shards.clients * c)
    return counts.reshape(shards.clients, c).astype(np.float64)
