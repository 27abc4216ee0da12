"""Recalibration at a site by its own rows and a prior, with a gate that may keep the model.

Nothing of this leaves the site, and it costs no privacy: a site may use its own rows for itself.
One function for one site or ten thousand.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcal.calibrators import Calibrator, Identity, TemperatureScaling, VectorScaling
from fedcal.core import numerics
from fedcal.core.numerics import Floats, Integers, Kind, Purpose, stream
from fedcal.core.shards import Shards
from fedcal.personal.posterior import HARM as HARM
from fedcal.personal.posterior import STEPS, Rows, SitePrior, log_odds, posterior

MOST_RISK = 0.03
"""Probability of harm with which a calibrator is still taken."""

_FOLDS = 5


@dataclass(frozen=True, eq=False)
class AtSite:
    """Recalibration found by each site, (S,) and more.

    Attributes
    ----------
    parameters
        (S, d) evaluated parameters: the largest posterior density, or a part of the way to it, the
        step of `STEPS` with the largest gain among those with acceptable risk (the least, if none)
    step
        (S,) length of that step, in (0, 1]
    risk
        (S,) posterior probability that they lose more than `HARM` against the model, on new rows
        with scores like the site's own; 1 where it has no rows. See `RIGHT`
    taken
        (S,) whether the risk is at most `MOST_RISK` and the gain, the posterior mean of the
        decrease of log loss, above 0; else the site keeps the model
    """

    parameters: Floats
    step: Floats
    risk: Floats
    taken: NDArray[np.bool_]

    @property
    def chosen(self) -> Floats:
        """(S, d) the parameters, 0 (the model as it is) where they are not taken."""
        return np.where(self.taken[:, None], self.parameters, 0.0)


def recalibrated(
    shards: Shards, priors: Sequence[SitePrior], weights: Floats | None = None
) -> AtSite:
    """Fit each client's parameters to its own rows, by its own prior, and evaluate the risk.

    Parameters
    ----------
    shards
        rows of S clients
    priors
        prior of each client
    weights
        (n,) what each row counts; None = 1. Rows of one person are not independent of each other:
        `Shards.weights(1)` counts each person once
    """
    at, cov, mean, sure = posterior(shards, priors, weights)
    risk, gain = Rows(shards, weights).risk(at, cov, mean, sure)
    safe = (risk <= MOST_RISK) & (gain > 0)
    best = np.where(safe.any(axis=0), np.where(safe, gain, -np.inf).argmax(axis=0), len(STEPS) - 1)
    step = np.array(STEPS)[best]
    own = best, np.arange(shards.clients)
    return AtSite(step[:, None] * at, step, risk[own], safe[own])


def calibrator_of(parameters: Floats, classes: int, input: Kind) -> Calibrator:
    """Return the calibrator of one site's parameters, (d,); all 0 = the model as it is."""
    made: Calibrator = Identity(classes)
    if parameters.any():
        if classes == 2:
            slope = float(np.exp(parameters[1]))
            made = VectorScaling([slope, slope, 0.0, float(parameters[0])], classes)
        else:
            made = TemperatureScaling(float(np.exp(-parameters[0])), classes)
    made.learnt_on(input)
    return made


def applied(shards: Shards, parameters: Floats) -> Floats:
    """Return each row's probabilities with its client's parameters (S, d), (n, c)."""
    own = parameters[shards.owner]
    if shards.classes == 2:
        p = numerics.sigmoid(own[:, 0] + np.exp(own[:, 1]) * log_odds(shards))
        return np.stack([1 - p, p], axis=1)
    return np.asarray(numerics.softmax(shards.logits * np.exp(own)))


def cross_validated(
    shards: Shards, priors: Sequence[SitePrior], weights: Floats | None = None
) -> Floats:
    """Return each row's probabilities by its site's choice without the row's fold, (n, c).

    Rows of one subject are in one fold. Without its fold a site of one row keeps the model.
    """
    each = np.ones(len(shards.labels)) if weights is None else weights
    fold = _folds(shards)
    probs = np.zeros(shards.logits.shape)
    for k in range(_FOLDS):
        out = fold == k
        recalibration = recalibrated(shards, priors, np.where(out, 0.0, each))
        probs[out] = applied(shards, recalibration.chosen)[out]
    return probs


def _folds(shards: Shards) -> Integers:
    """Return the fold of each row, (n,), with nearly equal numbers at every site."""
    rng = stream(0, Purpose.SPLIT, 0, "folds at home")
    who = np.arange(len(shards.labels)) if shards.subjects is None else shards.subjects
    _, unit = np.unique(np.stack([shards.owner, who]), axis=1, return_inverse=True)
    unit = unit.reshape(-1)
    firsts = np.unique(unit, return_index=True)[1]
    order = np.lexsort((rng.random(len(firsts)), shards.owner[firsts]))
    place = np.empty(len(firsts), np.int64)
    place[order] = np.arange(len(firsts)) % _FOLDS
    return np.asarray(place[unit])
