"""Draw of one index out of many, with probabilities given by their logarithms; see `samplers`.

It multiplies Python integers and searches their sums: its time depends slightly on the weights,
that is on private scores.
"""

from bisect import bisect_right
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats
from fedcal.mechanisms.samplers import UNITS, Words, exact

_MOST = 65536
_BITS = 192  # of the fixed point in which weights are multiplied; 60 digits are 199 bits
_BYTES = 16  # after the point of an exponent
_NEVER = 100.0  # exp(-100) < 2**-128


def categorical(log_weights: ArrayLike, words: Words) -> int:
    """Return an index i with probability ~ exp(log_weights[i]).

    Parameters
    ----------
    log_weights
        (candidates,) up to 65536 doubles, each standing for its exact binary value;
        -inf is a candidate that is never drawn

    Raises
    ------
    InputError
        If there are no candidates or too many, or a log weight is nan or +inf, or all are -inf.

    Notes
    -----
    Weights are within 3 * 2**-128 of the largest weight, so at most 65536 * 3 * 2**-128 < 2**-110
    of total variation is moved. A log weight that was computed in doubles has a relative error of
    1e-16 before it arrives here. That is an error of the caller's epsilon, not of this draw.
    """
    logs = np.asarray(log_weights, np.float64)
    fits = logs.ndim == 1 and 1 <= len(logs) <= _MOST
    if not fits or np.isnan(logs).any() or not np.isfinite(logs.max()):
        raise InputError(
            f"log weights must be 1 to {_MOST} numbers, finite or -inf, and not all of them -inf"
        )
    sums = list(accumulate(_weights(logs)))
    uniform = int.from_bytes(words(4).tobytes(), "little")
    return bisect_right(sums, uniform * sums[-1] >> 256)


def _weights(logs: Floats) -> list[int]:
    """Return exp(logs - max(logs)) in units of 2**-128.

    Each byte of the exponent selects a factor from its own table: the same multiplications
    for every candidate.
    """
    top = logs.max()
    with np.errstate(over="ignore"):  # a gap beyond all floats is never drawn either
        drawn = top - logs <= _NEVER
    value = np.where(drawn, logs, top)
    # The gap as a sum of two doubles, exactly (Knuth's TwoSum); each is cut to 128 bits.
    gap = top - value
    virtual = gap - top
    error = (top - (gap - virtual)) - (value + virtual)
    unit = 2.0 ** (8 * _BYTES)
    tables = _factors()
    weights = []
    for a, b, possible in zip(
        (gap * unit).tolist(), (error * unit).tolist(), drawn.tolist(), strict=True
    ):
        exponent = int(a) + int(b)
        weight = 2**_BITS
        for table, byte in zip(tables, exponent.to_bytes(_BYTES + 1, "little"), strict=True):
            weight = weight * table[byte] >> _BITS
        weights.append((weight >> _BITS - UNITS) * possible)
    return weights


@lru_cache(maxsize=1)
def _factors() -> tuple[tuple[int, ...], ...]:
    """Return tables: entry b of table j is exp(-b * 256**(j - 16)) in units of 2**-192."""
    with exact():
        steps = [Decimal(256) ** (j - _BYTES) for j in range(_BYTES + 1)]
        return tuple(tuple(int((-b * step).exp() * 2**_BITS) for b in range(256)) for step in steps)
