"""Counts that could be: not negative, near to noisy ones."""

from __future__ import annotations

import numpy as np

from fedcal.evaluation.histogram import Histogram
from fedcal.types import Floats


def monotone_counts(h: Histogram) -> Floats:
    """Counts whose prefix sums are the isotonic regression of the released ones, (2, buckets).

    Prefix sums of counts never fall; the nearest such sequence, kept within [0, total], is at
    most as far from the truth (Xu & Cormode 2025, arXiv 2510.04979, section 4; Hay et al. 2010).
    Unlike cutting each bucket at 0 it adds no rows. Counts without noise stay as they are.
    """
    if not h.noisy:
        return h.counts
    from scipy.optimize import isotonic_regression

    rows = []
    for counts in h.counts:
        prefix = np.cumsum(counts)
        total = max(float(prefix[-1]), 0.0)
        prefix[:-1] = np.clip(isotonic_regression(prefix[:-1]).x, 0.0, total)
        prefix[-1] = total
        rows.append(np.diff(prefix, prepend=0.0))
    return np.stack(rows)
