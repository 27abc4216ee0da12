"""The one binning function of the project.

Bins are equal in width and half open, [k/B, (k+1)/B), except the last one, which is closed. A value
and the edges are rounded to single precision before they are compared:

    bin(v) = min(#{k >= 1: float32(k/B) <= float32(v)}, B - 1)

So a score k/B belongs to bin k for every B, in float32 and in float64, and an error in the last
bits of a double, as softmax(log p) has, moves no score across an edge.

Metrics, client histograms and calibrator tables all call this function, so a probability falls
into the same bin wherever it is counted.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.scores import refuse_masked
from fedcal.core.types import Integers

HIGHEST = 1.0 + 1e-3
"""A probability may lie so far above 1 (rounded files do) and falls into the last bin."""

MOST_BINS = 2**20

_HALF = np.int64(1 << 28)  # of the last bit that a float32 has, in the bits of a double


def bin_index(values: ArrayLike, bins: int) -> Integers:
    """Return the bin of each value, as single precision holds it.

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
    # 1e-30 is absorbed by all that is not in bin 0, and nothing underflows
    single = np.add(v, 1e-30, out=np.empty(v.shape, np.float32), casting="same_kind")
    # float32(k/B) <= x if k/B <= x + half of its last bit: times B that is exact, and floor counts
    x = single.astype(np.float64)
    np.bitwise_or(x.view(np.int64), _HALF, out=x.view(np.int64))
    index = np.multiply(x, bins, out=x).astype(np.int64)
    return np.minimum(index, bins - 1, out=index)
