"""The one binning function of the project.

Bins are equal in width and half open, [k/B, (k+1)/B), except the last one, which is closed:

    bin(v) = min(floor(v * B), B - 1)

A value on an edge belongs to the bin above it. The product is rounded once, to double, and that
is the whole rule, also within an ulp of an edge: for B = 10 the double just below 0.9 is in bin
9, for B = 100 the double 0.29 is in bin 28. For 15 bins and for powers of two, k/B itself is in
bin k. Edges made by linspace, which round elsewhere, are never compared.

Metrics, client histograms and calibrator tables all call this function, so a probability falls
into the same bin wherever it is counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.scores import refuse_masked
from fedcal.core.types import Integers

HIGHEST = 1.0 + 1e-3
"""A probability may lie so far above 1 (rounded files do) and falls into the last bin."""

MOST_BINS = 2**20


def bin_index(values: ArrayLike, bins: int) -> Integers:
    """Return each value's bin, `min(floor(v * bins), bins - 1)`, with the product in double.

    Parameters
    ----------
    values
        any shape, in [0, 1]; up to 1 + 1e-3 is allowed and falls into the last bin
    bins
        in [1, 2**20]

    Returns
    -------
    Integers
        int64, same shape, in [0, bins)

    Raises
    ------
    InputError
        a value is negative, above 1 + 1e-3, or NaN; or `bins` is not allowed
    """
    whole("bins", bins, 1, MOST_BINS)
    refuse_masked("values", values)
    v = np.asarray(values, np.float64)
    if v.size and not (v.min() >= 0.0 and v.max() <= HIGHEST):  # a NaN fails the first
        raise InputError(f"values to bin must lie in [0, 1], got [{v.min():g}, {v.max():g}]")
    index = np.asarray((v * bins).astype(np.int64))  # v >= 0, so cutting the fraction is floor
    return np.minimum(index, bins - 1, out=index)
