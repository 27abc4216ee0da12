"""Treatment of negative noisy counts before a calibrator reads them.

Noise makes counts of few rows negative. Three ways, all post-processing of a release:

* `cut`: at 0, in the fine bins. The total grows: noise is positive now, half of the time.
* `merged`: at 0 too, but each of BBQ's coarser histograms is made of uncut fine bins and cut
  afterwards, so that noise of both signs cancels first.
* `norm-sub`: a common amount is subtracted from the positive counts, so that the total stays
  that of the noisy counts (Wang et al. 2020, "Locally Differentially Private Frequency
  Estimation with Consistency").

Figures are in the docstring of `fedcal.strategies.FedBBQ`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedcal.core.types import Floats

Negatives = Literal["cut", "merged", "norm-sub"]


def norm_sub(counts: Floats) -> Floats:
    """Return non-negative counts with each row's total (Norm-Sub; Wang et al. 2020, section 4).

    Repeat: cut negative counts to 0, subtract the excess of the total evenly from the positive
    ones; until none is negative. It ends at max(x - t, 0) with the one t that keeps the total, the
    Euclidean projection onto {x >= 0, sum x = total}; t is found by sorting.

    Parameters
    ----------
    counts
        (..., bins) noisy counts, finite

    Returns
    -------
    Floats
        (..., bins), all >= 0. A row without negative counts keeps every bit; one whose total is
        not positive becomes zero: there is nothing to share out. Equal counts stay equal and
        larger ones do not become smaller than others.
    """
    total = counts.sum(axis=-1, keepdims=True)
    falling = -np.sort(-counts, axis=-1)
    shares = (np.cumsum(falling, axis=-1) - total) / np.arange(1, counts.shape[-1] + 1)
    last = np.maximum((falling > shares).sum(axis=-1, keepdims=True) - 1, 0)
    moved = np.maximum(counts - np.take_along_axis(shares, last, axis=-1), 0.0)
    negative = (counts < 0).any(axis=-1, keepdims=True)
    return np.where(negative, np.where(total > 0, moved, 0.0), counts)


def cleaned(counts: Floats, negatives: Negatives) -> Floats:
    """Return fine bins as they go into merging; "merged" leaves them unchanged."""
    if negatives == "norm-sub":
        return norm_sub(counts)
    return counts if negatives == "merged" else np.maximum(counts, 0.0)


def merged(fine: Floats, bins: int) -> Floats:
    """Join neighbouring bins, (tables, fine) -> (tables, bins), and cut negative sums at 0."""
    counts: Floats = fine.reshape(len(fine), bins, -1).sum(axis=2)
    return np.maximum(counts, 0.0)
