"""Public thresholds that suit a score: many where the scores of labels differ.

Scores by probability (`lac`, `margin`) and randomised ones by order are spread over [0, 1], and
crowd at its ends: thresholds are evenly spaced in their log-odds, or in arcsin sqrt(score).
Deterministic scores by order crowd at 1: a model that is nearly always right has a score of
1 - 1e-8 for nine labels of ten. Of `raps` the penalties lie above that.
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
"""Of those that crowd at 1; scores are rounded to 12 decimals, which is 27.6."""

_PENALISED = 3
"""One in so many thresholds is for penalties, but not more than there are labels that have one."""


def thresholds(conformity: Conformity, classes: int, number: int, *, arcs: bool = False) -> Floats:
    """Thresholds of a score, (number,), increasing, the last one 1.

    Parameters
    ----------
    classes
        of the model
    number
        at least 2
    arcs
        evenly in arcsin sqrt(score) where scores are spread: more of them in the middle
    """
    whole("bins", number, 2)
    penalty, free = conformity.regularisation
    penalised = max(0, classes - free) if conformity.name == "raps" and penalty > 0 else 0
    above = min(number // _PENALISED, penalised)
    most = 1.0 + penalty * penalised
    found = _of_mass(number - above, conformity, arcs)
    if above:
        found = np.append(found / most, np.linspace(1.0 / most, 1.0, above + 1)[1:])
        found[-1] = 1.0
    return np.asarray(found)


def after_last(thresholds: Floats, short: NDArray[np.bool_]) -> float:
    """The threshold after the last one that falls short, or the first where none does.

    Scanned from the top: of a thousand noisy counts the first one above a level is often far too
    low.

    Parameters
    ----------
    thresholds
        (m,)
    short
        (m - 1,) of all but the last
    """
    places = np.flatnonzero(short)
    return float(thresholds[places[-1] + 1 if len(places) else 0])


def spread(number: int, *, arcs: bool = False) -> Floats:
    """Thresholds of scores that are spread over [0, 1], (number,)."""
    return np.asarray(arcsine_edges(number)[1:]) if arcs else _log_odds(number, SPREAD)


def _of_mass(number: int, conformity: Conformity, arcs: bool) -> Floats:
    """Of a score without penalties."""
    if conformity.score.ranked and not conformity.randomised:
        return _log_odds(number, CROWDED)
    return spread(number, arcs=arcs)


def _log_odds(number: int, ends: tuple[float, float]) -> Floats:
    return np.append(1.0 / (1.0 + np.exp(-np.linspace(*ends, number - 1))), 1.0)
