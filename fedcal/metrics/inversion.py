"""Intervals of calibration errors: inverting a test of gaps that noise alone makes positive.

The error is a sum (or a maximum) of absolute gaps, so noise alone makes it positive:
the plug-in is biased upwards, a replicate, which adds noise to noise, still more, and percentile
intervals then miss the truth nearly always (measured: they never cover a calibrated truth, and
never the classwise ECE of a mildly miscalibrated one; basic intervals cover that in 0 to 65 %).

So a test is inverted. Let g be the observed gaps, d a replicate's deviations from g, and u the
gaps again, but none smaller than half its own standard error. The values sum |k u + d| are what
one could observe if the true gaps were k u; the interval holds all totals k sum |u| under which
the observed error lies within the central 95 % of them. Calibrated truth is k = 0, where this is
exact; far from it, it is the basic bootstrap interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedcal.core.types import Floats

Join = Literal["sum", "max"]
"""Rule that joins absolute gaps to one error."""

JOINS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (np.sum, np.add),
    "max": (np.max, np.maximum),
}
"""Functions that join cells along an axis, and blocks of cells with one another."""
_LEAST = 0.5  # standard errors: no entry of the direction u is smaller
_CLEAR = 2.0  # standard errors: what stands out
_FACTORS = np.concatenate([np.linspace(0.0, 1.5, 16), np.linspace(1.75, 3.0, 6), [3.5, 4.5, 6, 8]])
_BLOCK = 2**18  # entries of replicates x cells


@dataclass(frozen=True)
class Inverted:
    """Interval of one calibration error, and the inputs of a paired difference.

    Attributes
    ----------
    low, high
        where the observed error is at the upper and at the lower end of what could be observed
    limit
        the high end had the observed error been at least the median of a calibrated truth's: an
        error that is small by luck then gives no interval of [0, 0]
    corrected
        where it is the median: a median-unbiased estimate, always in [low, high]
    noise
        median of the error, were the truth calibrated
    replicates
        (replicates,) errors, were the truth the corrected one
    """

    low: float
    high: float
    limit: float
    corrected: float
    noise: float
    replicates: Floats


def spread_out(gap: Floats, error: Floats) -> Floats:
    """Return the module docstring's direction with a true gap in every cell, (cells,)."""
    return np.asarray(np.where(gap < 0, -1.0, 1.0) * np.maximum(np.abs(gap), _LEAST * error))


def concentrated(gap: Floats, error: Floats) -> Floats:
    """Return the direction whose true gaps are only those that stand out from their error.

    Among all true gaps with one sum, those in few cells give the largest observed error, because
    the noise of all other cells comes on top; gaps that are spread out give the smallest. An
    interval with its low end from here and its high end from `spread_out` is valid for both.
    """
    least = _LEAST / 2 * error
    return np.asarray(np.where(np.abs(gap) > _CLEAR * error, gap, np.copysign(least, gap)))


def invert(
    gap: Floats,
    direction: Floats,
    deviations: Callable[[slice], NDArray[Any]],
    replicates: int,
    join: Join,
    tails: tuple[float, float],
) -> Inverted:
    """Invert the test of the module's docstring.

    Parameters
    ----------
    gap
        (cells,) observed gaps, in units of the error
    direction
        (cells,) what true gaps are multiples of, from their standard errors, such as `spread_out`
    deviations
        cells -> (replicates, cells) float32 draws of observed less true gaps
    replicates
        number of replicates
    join
        rule that joins absolute gaps to the error
    tails
        probabilities of the interval's ends, (.025, .975) for 95 %

    Returns
    -------
    Inverted
        in units of the error
    """
    if not len(gap):  # every row right with probability 1: no gap, and no noise
        return Inverted(0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(replicates))
    together, merge = JOINS[join]
    step = max(1, _BLOCK // replicates)
    columns = [slice(i, i + step) for i in range(0, len(gap), step)]

    def spread(factors: Floats) -> Floats:
        """Return the error for true gaps of factor * direction, (factors, replicates)."""
        errors = np.zeros((len(factors), replicates))
        for part in columns:
            noise = deviations(part)
            for k, factor in enumerate(factors):
                gaps = noise + (factor * direction[part]).astype(np.float32)
                merge(errors[k], together(np.abs(gaps, out=gaps), axis=1), out=errors[k])
        return errors

    observed, unit = (float(together(np.abs(x), axis=0)) for x in (gap, direction))
    values = spread(_FACTORS)
    ends = np.quantile(values, (tails[1], 0.5, tails[0]), axis=1)
    low, middle, high = (_crossing(end, observed) for end in ends)
    return Inverted(
        low=low * unit,
        high=high * unit,
        limit=_crossing(ends[2], max(observed, float(ends[1][0]))) * unit,
        corrected=middle * unit,
        noise=float(np.median(values[0])),
        replicates=spread(np.array([middle]))[0],
    )


def _crossing(quantile: Floats, observed: float) -> float:
    """Return the factor at which a quantile, which grows with it, reaches the observed value."""
    grown = np.maximum.accumulate(quantile)
    return 0.0 if grown[0] >= observed else float(np.interp(observed, grown, _FACTORS))
