"""At a site: its parameters by its own rows and a prior, and the gate that keeps the model else.

Nothing of this leaves the site, and it costs no privacy: a site may use its own rows for itself.
One function for one site or ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedcal.calibrators import Calibrator, Identity, TemperatureScaling, VectorScaling
from fedcal.core.errors import InputError
from fedcal.core.numerics import label_entries, shifted, sigmoid, softmax, softplus
from fedcal.core.scores import Kind
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers
from fedcal.personal.prior import SitePrior, identity_prior

HARM = 0.02
"""Log loss by which a calibrator must be worse than the model to be called harmful."""

MOST_RISK = 0.05
"""Probability of harm with which a calibrator is still taken."""

RIGHT = 0.1
"""Prior probability that the model is right at a site as it is; others' rows and its own move it.

With it and a risk of 0.05 at most, no cell of a simulation had more than 4.2 % of sites harmed (72
cells: K = 4 and 12, 5 to 100 own rows, no to strong differences, epsilon 1 and none); with 0.10
and no such probability 13 cells had more than 5 %, up to 17 % where the model is right and sites
have 30 rows: a continuous prior never believes that. Both were chosen on made-up rows."""

_STEPS, _LONGEST = 40, 0.5
_DRAWS = 256
_FURTHEST, _LOWEST = 30.0, 100.0
"""Log odds are cut to the first; logits, of more classes, to the second below the largest."""


@dataclass(frozen=True, eq=False)
class AtSite:
    """What each site finds, (S,) and more.

    Attributes
    ----------
    parameters
        (S, d) those of the largest posterior density
    cov
        (S, d, d) of the posterior (Laplace's approximation)
    risk
        (S,) posterior probability that they lose more than `HARM` against the model, on new rows
        with scores like the site's own; see `RIGHT`
    gain
        (S,) posterior mean of what log loss falls by
    taken
        (S,) whether the risk is at most `MOST_RISK`; the site keeps the model else
    """

    parameters: Floats
    cov: Floats
    risk: Floats
    gain: Floats
    taken: NDArray[np.bool_]

    @property
    def chosen(self) -> Floats:
        """(S, d) the parameters, 0 (the model as it is) where they are not taken."""
        return np.where(self.taken[:, None], self.parameters, 0.0)


def recalibrated(
    shards: Shards, priors: Sequence[SitePrior], weights: Floats | None = None
) -> AtSite:
    """Fit each client's parameters to its own rows, by its own prior, and judge the risk.

    Parameters
    ----------
    shards
        rows of S clients
    priors
        of each of them
    weights
        (n,) what each row counts; None = 1. Rows of one person are not independent of each other:
        `Shards.weights(1)` counts each person once

    Raises
    ------
    InputError
        If the priors are not those of so many clients, or of such parameters.
    """
    at, cov = posterior(shards, priors, weights)
    risk, gain = _Rows(shards, weights).risk(at, cov)
    return AtSite(at, cov, risk, gain, risk <= MOST_RISK)


def posterior(
    shards: Shards, priors: Sequence[SitePrior], weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """The first two numbers of `AtSite`: parameters, and their covariance; see `recalibrated`.

    A client's bits do not depend on who shares the shards. No row makes it raise.
    """
    two, sites = shards.classes == 2, shards.clients
    if len(priors) != sites or any(len(p.mean) != 1 + two for p in priors):
        raise InputError(
            f"{len(priors)} priors do not fit {sites} sites of {shards.classes} classes"
        )
    mean = np.array([p.mean for p in priors]).reshape(sites, 1 + two)
    sure = np.linalg.inv(np.array([p.cov for p in priors]).reshape(sites, 1 + two, 1 + two))
    rows = _Rows(shards, weights)
    at, moving = mean.copy(), np.ones((sites, 1), np.bool_)
    for _ in range(_STEPS):
        pull, curve = rows.derivatives(at)
        curve = curve + sure
        slope = pull - ((at - mean)[:, None] @ sure)[:, 0]
        step = np.clip(np.linalg.solve(curve, slope[..., None])[..., 0], -_LONGEST, _LONGEST)
        at = at + step * moving
        moving &= np.abs(step).max(axis=1, keepdims=True) >= 1e-9
        if not moving.any():
            break
    return at, np.asarray(np.linalg.inv(rows.derivatives(at)[1] + sure))


def calibrator_of(parameters: Floats, classes: int, input: Kind) -> Calibrator:
    """The calibrator of one site's parameters, (d,); all 0 = the model as it is."""
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
    """Probabilities of each row with its client's parameters (S, d), (n, c)."""
    own = parameters[shards.owner]
    if shards.classes == 2:
        p = sigmoid(own[:, 0] + np.exp(own[:, 1]) * _log_odds(shards))
        return np.stack([1 - p, p], axis=1)
    return np.asarray(softmax(shards.logits * np.exp(own)))


def cross_validated(
    shards: Shards,
    priors: Sequence[SitePrior],
    weights: Floats | None = None,
    folds: int = 5,
    seed: int = 0,
) -> Floats:
    """Probabilities of each row by what its site would have chosen without its fold, (n, c).

    Rows of one subject are in one fold. A site with one row alone has its prior for it.
    """
    each = np.ones(len(shards.labels)) if weights is None else weights
    fold = _folds(shards, folds, seed)
    probs = np.zeros(shards.logits.shape)
    for k in range(folds):
        out = fold == k
        found = recalibrated(shards, priors, np.where(out, 0.0, each))
        probs[out] = applied(shards, found.chosen)[out]
    return probs


def _folds(shards: Shards, folds: int, seed: int) -> Integers:
    """Number of each row's fold, (n,): as many of each as can be at every site."""
    rng = stream(seed, Purpose.SPLIT, 0, "folds at home")
    who = np.arange(len(shards.labels)) if shards.subjects is None else shards.subjects
    _, unit = np.unique(np.stack([shards.owner, who]), axis=1, return_inverse=True)
    unit = unit.reshape(-1)
    firsts = np.unique(unit, return_index=True)[1]
    order = np.lexsort((rng.random(len(firsts)), shards.owner[firsts]))
    place = np.empty(len(firsts), np.int64)
    place[order] = np.arange(len(firsts)) % folds
    return np.asarray(place[unit])


def _log_odds(shards: Shards) -> Floats:
    return np.clip(shards.logits[:, 1] - shards.logits[:, 0], -_FURTHEST, _FURTHEST)


class _Rows:
    """Rows of sites, and sums over those of each."""

    def __init__(self, shards: Shards, weights: Floats | None) -> None:
        weights = np.ones(len(shards.labels)) if weights is None else weights
        self.shards, self.weights = shards, weights
        self.two, self.owner = shards.classes == 2, shards.owner
        self.x = _log_odds(shards) if self.two else np.maximum(shifted(shards.logits), -_LOWEST)
        total = shards.sum_rows(weights)
        self.share = weights / np.where(total > 0, total, 1.0)[self.owner]

    def sums(self, values: Floats) -> Floats:
        return self.shards.sum_rows(values)

    def derivatives(self, at: Floats) -> tuple[Floats, Floats]:
        """Gradient (S, d) of the log likelihood, and its expected curvature (S, d, d)."""
        own, w = at[self.owner], self.weights
        if not self.two:
            z = self.x * np.exp(own)
            p = softmax(z)
            mean = (p * z).sum(axis=1)
            pull = self.sums(w * (label_entries(z, self.shards.labels) - mean))
            curve = self.sums(w * ((p * z * z).sum(axis=1) - mean**2))
            return pull[:, None], curve[:, None, None]
        e = np.exp(own[:, 1]) * self.x
        p = sigmoid(own[:, 0] + e)
        slack, weight = w * (self.shards.labels - p), w * p * (1 - p)
        pull = np.stack([self.sums(slack), self.sums(slack * e)], axis=1)
        cross = self.sums(weight * e)
        curve = np.array([[self.sums(weight), cross], [cross, self.sums(weight * e * e)]])
        return pull, np.moveaxis(curve, -1, 0)

    def risk(self, at: Floats, cov: Floats) -> tuple[Floats, Floats]:
        """Posterior probability (S,) of harm, and the mean of the fall of log loss."""
        root = np.linalg.cholesky(cov)
        own = at[self.owner]
        if self.two:
            z = own[:, 0] + np.exp(own[:, 1]) * self.x
            fixed, off = softplus(z) - softplus(self.x), z - self.x
        else:
            z = self.x * np.exp(own)
            fixed = _log_sum(z) - _log_sum(self.x)
            off = np.exp(own[:, 0]) - 1
        start = self.sums(self.share * fixed)

        def lost(true: Floats) -> Floats:
            """What log loss rises by where these parameters (S, d) are true."""
            drawn = true[self.owner]
            if self.two:
                expected = sigmoid(drawn[:, 0] + np.exp(drawn[:, 1]) * self.x)
            else:
                expected = (softmax(self.x * np.exp(drawn)) * self.x).sum(axis=1)
            return np.asarray(start - self.sums(self.share * off * expected))

        right = _as_it_is(at, cov, self.shards.classes)
        draws = [lost(at + root @ draw) for draw in normal_points(_DRAWS, at.shape[1])]
        none = lost(np.zeros_like(at))
        risk = right * (none > HARM) + (1 - right) * np.mean([d > HARM for d in draws], axis=0)
        return risk, -(right * none + (1 - right) * np.mean(draws, axis=0))


def _as_it_is(at: Floats, cov: Floats, classes: int) -> Floats:
    """Posterior probability that the model is right as it is, (S,).

    The hypothesis is a point of the other one, so its odds are the density there after all rows,
    of others and of its own, over that of the identity prior (Dickey 1971).
    """
    first = identity_prior(classes).cov
    ratio = np.linalg.slogdet(first)[1] - np.linalg.slogdet(cov)[1]
    far = (at[:, None] @ np.linalg.solve(cov, at[..., None]))[:, 0, 0]
    odds = RIGHT / (1 - RIGHT) * np.exp(np.minimum((ratio - far) / 2, 100.0))
    return np.asarray(odds / (1 + odds))


def _log_sum(z: Floats) -> Any:
    top = z.max(axis=1)
    return top + np.log(np.exp(z - top[:, None]).sum(axis=1))


def normal_points(number: int, dimensions: int) -> Floats:
    """Points (number, dimensions) spread like a standard normal, always the same.

    The additive recurrence of the root of x^(d + 1) = x + 1 (Roberts 2018), by the quantiles.
    """
    root = 1.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    return np.asarray(ndtri((0.5 + np.arange(1, number + 1)[:, None] * steps) % 1.0))
