"""Public thresholds for a score, dense where the scores of labels differ.

Scores by probability (`lac`, `margin`) and randomised scores by order are spread over [0, 1] and
concentrate at its ends: thresholds are evenly spaced in their log-odds, or in arcsin sqrt(score).
Deterministic scores by order concentrate at 1: a model that is nearly always right has a score of
1 - 1e-8 for nine labels of ten. The penalties of `raps` lie above that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.conformity import Conformity
from fedcal.core.checks import whole
from fedcal.core.types import Floats
from fedcal.metrics.buckets import arcsine_edges

SPREAD = (-9.0, 9.0)
"""Log-odds of scores that are spread over [0, 1]."""

CROWDED = (-2.0, 22.0)
"""Log-odds of scores that concentrate at 1; the rounding to 12 decimals is at 27.6."""

_PENALISED = 3
"""One in three thresholds is for penalties, but at most one for each label with a penalty."""


def thresholds(conformity: Conformity, classes: int, number: int, *, arcs: bool = False) -> Floats:
    """Return a score's thresholds, (number,), increasing, the last one 1.

    Parameters
    ----------
    classes
        of the model
    number
        at least 2
    arcs
        space them evenly in arcsin sqrt(score) where scores are spread: more of them in the middle
    """
    whole("bins", number, 2)
    penalty, free = conformity.regularisation
    penalised = max(0, classes - free) if conformity.name == "raps" and penalty > 0 else 0
    above = min(number // _PENALISED, penalised)
    most = 1.0 + penalty * penalised
    edges = _of_mass(number - above, conformity, arcs)
    if above:
        edges = np.append(edges / most, np.linspace(1.0 / most, 1.0, above + 1)[1:])
        edges[-1] = 1.0
    return np.asarray(edges)


def after_last(thresholds: Floats, short: NDArray[np.bool_]) -> float:
    """Return the threshold after the last one that falls short; the first if none falls short.

    The scan starts at the top, because the first of a thousand noisy counts above a level is often
    at a threshold that is far too low.

    Parameters
    ----------
    thresholds
        (m,)
    short
        (m - 1,) whether each threshold but the last falls short
    """
    places = np.flatnonzero(short)
    return float(thresholds[places[-1] + 1 if len(places) else 0])


def spread(number: int, *, arcs: bool = False) -> Floats:
    """Return thresholds of scores that are spread over [0, 1], (number,)."""
    return np.asarray(arcsine_edges(number)[1:]) if arcs else _log_odds(number, SPREAD)


def _of_mass(number: int, conformity: Conformity, arcs: bool) -> Floats:
    """Return thresholds of a score without penalties, (number,)."""
    if conformity.score.ranked and not conformity.randomised:
        return _log_odds(number, CROWDED)
    return spread(number, arcs=arcs)


def _log_odds(number: int, ends: tuple[float, float]) -> Floats:
    return np.append(1.0 / (1.0 + np.exp(-np.linspace(*ends, number - 1))), 1.0)
