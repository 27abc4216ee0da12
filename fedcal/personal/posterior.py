"""A site's prior from all other sites: random effects, integrated over their variance.

A site's parameters are N(mu, diag(tau^2)); mu is normal about "the model as it is", each tau
half-normal with a declared scale, and is integrated over, never plugged in: by restricted maximum
likelihood tau is 0 in 15 to 33 % of draws of 4 to 8 sites, which would force every site onto the
common calibrator (Higgins, Thompson & Spiegelhalter 2009, JRSS A 172:137). Where a release shows
nothing, for noise or for want of rows, the prior is the identity prior, and nothing else.

All of it is post-processing of a release; no rows are read.

The posterior of a site's own recalibration, from its rows and a prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
from scipy.special import logsumexp, ndtri

from fedcal.core import fitting, numerics
from fedcal.core.checks import InputError, interval
from fedcal.core.numerics import Floats
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.buckets import inverse
from fedcal.evaluation.sites.effects import Effects, effects

_MISFIT = np.array([0.05, 0.05])
_MISFIT_TOP = np.array([0.1])
"""Std of what buckets misread, of two classes, and of a temperature read from confidences."""
_WIDEN = 0.5
"""By how much variances grow where all of the common parameters is learnt, for what the linear
scores leave out: they pull sites that differ much towards the common fit."""
_MANY = 100
"""Sites up to which each is left out of all that is computed."""
_MOST_ROWS = 1e12
_NODES = 12
"""Values of each tau, equally probable a priori."""


def site_priors(release: ScoreRelease, only: Sequence[str] | None = None) -> dict[str, SitePrior]:
    """Return the prior of each site of a release, without the site's own cells.

    A site's own rows count once, in its own fit. (With more than 100 sites all are linearised about
    one common fit, to which the site's own rows contribute a little.)

    Parameters
    ----------
    release
        release of counts by site
    only
        sites to return, "" among them for a site that is not in the release; None = all

    Raises
    ------
    InputError
        If sites were not counted apart, but groups of rows or none, or a score that has several
        histograms; if a site has more rows than possible.
    """
    asked = release.question
    if asked.by != "site" or asked.score == "classes":
        raise InputError(
            "a prior needs a release of counts by site, with score positive or confidence: "
            "fedcal evaluate --by site, or --method fedprior"
        )
    names, classes = asked.group_names, asked.classes
    sites, none = release.by_site, identity_prior(classes)
    most = max(np.abs(sites.counts).max(initial=0.0), release.std)
    interval(f"[0, {_MOST_ROWS}]")("largest number of a site's rows, or std of the noise,", most)

    def prior(left_out: str) -> SitePrior:
        rest = [name != left_out for name in names]
        fit = any(rest) and predictive(effects(sites[rest], classes), classes)
        return SitePrior(*fit, sum(rest)) if fit else none

    if only is None and len(names) > _MANY:
        each = zip(names, *leave_one_out(effects(sites, classes), classes), strict=True)
        rest = {name: SitePrior(mean, cov, len(names) - 1) for name, mean, cov in each}
        return {"": prior(""), **rest}
    return {name: prior(name) for name in (("", *names) if only is None else only)}


def predictive(site_effects: Effects, classes: int) -> tuple[Floats, Floats]:
    """Return mean (..., d) and covariance (..., d, d) of the parameters of an absent site."""
    sums = [part.sum(axis=-k) for k, part in enumerate(_parts(site_effects, classes), 1)]
    return _mixed(site_effects, classes, *sums)


def leave_one_out(site_effects: Effects, classes: int) -> tuple[Floats, Floats]:
    """Return the prior of each site without its own scores: (..., S, d) and (..., S, d, d)."""
    parts = enumerate(_parts(site_effects, classes), 1)
    rest = [np.moveaxis(p.sum(axis=-k, keepdims=True) - p, -k, 0) for k, p in parts]
    mean, cov = _mixed(site_effects, classes, *rest)
    return np.moveaxis(mean, 0, -2), np.moveaxis(cov, 0, -3)


def _grid(classes: int) -> Floats:
    """Return equally probable values of tau, (nodes, d): quantiles of the half-normal."""
    _, scale = common_spread(classes)
    halves = (np.arange(_NODES) + 0.5) / _NODES
    nodes = np.array([NormalDist().inv_cdf((1 + half) / 2) for half in halves])
    axes = np.meshgrid(*(nodes * s for s in scale), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=-1)


def _parts(site_effects: Effects, classes: int) -> tuple[Floats, Floats, Floats]:
    """Return log likelihood, gradient and curvature of each tau and site, which add up over sites.

    (..., nodes, S), (..., nodes, S, d), (..., nodes, S, d, d), about mu = the common fit.
    """
    tau = _grid(classes)
    both = (site_effects.information, site_effects.noise)
    info, noise = (each[..., None, :, :, :] for each in both)
    apart = info @ (info * (tau**2)[:, None, :, None])
    within = inverse(info + noise + apart)
    score = site_effects.scores[..., None, :, :, None]
    weighed = within @ score
    fit = -(score * weighed).sum(axis=(-1, -2)) / 2 + np.linalg.slogdet(within)[1] / 2
    return fit, (info @ weighed)[..., 0], info @ within @ info


def _mixed(
    site_effects: Effects, classes: int, fit: Floats, pull: Floats, weight: Floats
) -> tuple[Floats, Floats]:
    """Return mean and covariance of a new site's parameters, mixed over tau, from `_parts`."""
    common, _ = common_spread(classes)
    prior, tau = np.diag(1 / common**2), _grid(classes)
    at = site_effects.at[..., None, :]
    cov = np.linalg.inv(prior + weight)
    start = pull - at @ prior
    mean = (cov @ start[..., None])[..., 0]
    log = fit + np.linalg.slogdet(cov)[1] / 2 + (mean * start).sum(axis=-1) / 2
    p = np.exp(log - log.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    each = cov + tau[:, :, None] ** 2 * np.eye(tau.shape[1])
    mixed = (p[..., None] * mean).sum(axis=-2)
    off = mean - mixed[..., None, :]
    spread = (p[..., None, None] * (each + off[..., :, None] * off[..., None, :])).sum(axis=-3)
    learnt = 1 - np.einsum("...n,...nii->...i", p, cov) / common**2
    wider = np.sqrt(1 + _WIDEN * np.clip(learnt, 0, 1))
    misfit = _MISFIT if classes == 2 else _MISFIT_TOP
    spread = spread * wider[..., :, None] * wider[..., None, :]
    return mixed + site_effects.at, np.asarray(spread + np.diag(misfit**2))


HARM = 0.02
"""Log loss by which a calibrator must be worse than the model to be called harmful."""

RIGHT = 0.1
"""Prior probability that the model is right at a site as it is; others' rows and its own move it.

With it and a risk of 0.05 at most, no cell of a simulation had more than 4.2 % of sites harmed (72
cells: K = 4 and 12, 5 to 100 own rows, no to strong differences, epsilon 1 and none); with 0.10
and no such probability 13 cells had more than 5 %, up to 17 % where the model is right and sites
have 30 rows: a continuous prior never believes that. Both were chosen on made-up rows."""

STEPS = (1.0, 0.75, 0.5, 0.25)
"""Parts of the way from the model to the fit that are evaluated."""

_ITERATIONS, _LONGEST = 40, 0.5
_DRAWS, _WIDER = 256, 1.3
_FURTHEST, _LOWEST = 30.0, 100.0
"""Log odds are cut to the first; logits, of more classes, to the second below the largest."""
_COMMON = np.array([0.8, 0.4])
"""Std of mu: of the offset o, and of the log slope l."""
_SCALE = np.array([0.6, 0.3])
"""Scale of the half-normal prior of tau: together with `_COMMON` std 1 and 0.5."""


@dataclass(frozen=True, eq=False)
class SitePrior:
    """A normal prior of a site's parameters, (o, l) of two classes or (l,); see `changed`.

    Attributes
    ----------
    mean
        (d,)
    cov
        (d, d)
    sites
        that it was learnt from; 0 = none: the identity prior
    """

    mean: Floats
    cov: Floats
    sites: int = 0


def common_spread(classes: int) -> tuple[Floats, Floats]:
    """Return the std of the common parameters, and the scale of tau: (d,) each."""
    own = slice(None) if classes == 2 else slice(1, None)
    return _COMMON[own], _SCALE[own]


def identity_prior(classes: int) -> SitePrior:
    """Return the prior of a site without a release: about the model as it is, std 1 and 0.5."""
    common, scale = common_spread(classes)
    return SitePrior(np.zeros(len(common)), np.diag(common**2 + scale**2))


def posterior(
    shards: Shards, priors: Sequence[SitePrior], weights: Floats | None = None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the fit (S, d), its covariance (S, d, d); the priors' mean and precision likewise.

    A client's bits do not depend on which clients share the shards. Rows never make it raise.
    """
    two, sites = shards.classes == 2, shards.clients

    mean = np.array([p.mean for p in priors]).reshape(sites, 1 + two)
    sure = np.linalg.inv(np.array([p.cov for p in priors]).reshape(sites, 1 + two, 1 + two))
    rows = OwnRows(shards, weights)
    at, moving = mean.copy(), np.ones((sites, 1), np.bool_)
    for _ in range(_ITERATIONS):
        pull, curve = rows.derivatives(at)
        curve = curve + sure
        # as far as it adds: expected curvature alone swings about slopes that are near 0
        curve[:, -1, -1] += np.maximum(-pull[:, -1], 0.0)
        slope = pull - ((at - mean)[:, None] @ sure)[:, 0]
        step = np.clip(np.linalg.solve(curve, slope[..., None])[..., 0], -_LONGEST, _LONGEST)
        at = at + step * moving
        moving &= np.abs(step).max(axis=1, keepdims=True) >= 1e-9
        if not moving.any():
            break
    return at, np.asarray(np.linalg.inv(rows.derivatives(at)[1] + sure)), mean, sure


def log_odds(shards: Shards) -> Floats:
    """Return the log odds of class 1 of two of each row, cut to a range, (n,)."""
    return np.clip(shards.logits[:, 1] - shards.logits[:, 0], -_FURTHEST, _FURTHEST)


class OwnRows:
    """Rows of sites, and sums over those of each."""

    def __init__(self, shards: Shards, weights: Floats | None) -> None:
        weights = np.ones(len(shards.labels)) if weights is None else weights
        self.shards, self.weights, z = shards, weights, shards.logits
        self.two, self.owner = shards.classes == 2, shards.owner
        self.x = log_odds(shards) if self.two else np.maximum(numerics.shifted(z), -_LOWEST)
        self.sums = shards.sum_rows
        self.total = self.sums(weights)
        self.share = weights / np.where(self.total > 0, self.total, 1.0)[self.owner]

    def moved(self, at: Floats) -> Floats:
        """Return log odds (n,), or logits (n, c), by the parameters (S, d) of each row's client."""
        own = at[self.owner]
        if self.two:
            return own[:, 0] + np.exp(own[:, 1]) * self.x
        return self.x * np.exp(own)

    def derivatives(self, at: Floats) -> tuple[Floats, Floats]:
        """Return gradient (S, d) and expected curvature (S, d, d) of the log likelihood."""
        own, w = at[self.owner], self.weights
        if not self.two:
            a = np.exp(own)
            mean, variance = fitting.tempered_moments(self.x, a)
            slack, a = fitting.label_entries(self.x, self.shards.labels) - mean, a[:, 0]
            pull, curve = self.sums(w * a * slack), self.sums(w * a**2 * variance)
            return pull[:, None], curve[:, None, None]
        e = np.exp(own[:, 1]) * self.x
        p = fitting.sigmoid(own[:, 0] + e)
        slack, weight = w * (self.shards.labels - p), w * p * (1 - p)
        pull = np.stack([self.sums(slack), self.sums(slack * e)], axis=1)
        cross = self.sums(weight * e)
        curve = np.array([[self.sums(weight), cross], [cross, self.sums(weight * e * e)]])
        return pull, np.moveaxis(curve, -1, 0)

    def look(self, at: Floats) -> tuple[Floats, Floats]:
        """Return the rows' log likelihood (n,), and the expected outcome or own logit."""
        z = self.moved(at)
        if self.two:
            return self.shards.labels * z - fitting.softplus(z), fitting.sigmoid(z)
        each = np.exp(z)  # the largest of z is 0
        total = each.sum(axis=1)
        mean = np.einsum("nc,nc->n", each, self.x) / total
        return fitting.label_entries(z, self.shards.labels) - np.log(total), mean

    def risk(self, at: Floats, cov: Floats, mean: Floats, sure: Floats) -> tuple[Floats, Floats]:
        """Return the posterior probability of harm, and the mean fall of log loss: (steps, S).

        By importance sampling about the largest density: the posterior of few rows, nearly all of
        one class, is skewed, and a normal one would see harm where there is none.
        """
        start, lever, log_sum = [], [], fitting.softplus if self.two else partial(logsumexp, axis=1)
        for step in STEPS:
            z, own = self.moved(step * at), step * at[self.owner]
            start.append(self.sums(self.share * (log_sum(z) - log_sum(self.x))))
            lever.append(self.share * (z - self.x if self.two else np.exp(own[:, 0]) - 1))

        def loss_and_density(true: Floats) -> tuple[Floats, Floats]:
            """Return the rise of log loss if these (S, d) are true, and their log posterior."""
            likelihood, expected = self.look(true)
            far = (true - mean)[:, None]
            log = self.sums(self.weights * likelihood) - (far @ sure * far).sum(axis=(1, 2)) / 2
            lost = [s - self.sums(e * expected) for s, e in zip(start, lever, strict=True)]
            return np.array(lost), log

        points = normal_points(_DRAWS, at.shape[1])
        root = _WIDER * np.linalg.cholesky(cov)
        draws = [loss_and_density(at + root @ point) for point in points]
        lost, log = (np.array(part) for part in zip(*draws, strict=True))
        log = log + ((points**2).sum(axis=1) / 2)[:, None]
        top = log.max(axis=0)
        weight = np.exp(log - top)
        # the density at the model as it is, over that of the identity prior (Dickey 1971): the
        # hypothesis that it is right is a point of the other one, of rows here and elsewhere
        none, here = loss_and_density(np.zeros_like(at))
        volume = np.linalg.slogdet(root)[1] + np.log(weight.mean(axis=0)) + top
        first = np.linalg.slogdet(identity_prior(self.shards.classes).cov)[1] / 2
        odds = RIGHT / (1 - RIGHT) * np.exp(np.clip(here - volume + first, -100.0, 100.0))
        right, weight = odds / (1 + odds), (weight / weight.sum(axis=0))[:, None]
        risk = right * (none > HARM) + (1 - right) * (weight * (lost > HARM)).sum(axis=0)
        gain = -(right * none + (1 - right) * (weight * lost).sum(axis=0))
        return np.where(self.total > 0, risk, 1.0), gain


def normal_points(number: int, dimensions: int) -> Floats:
    """Return fixed points (number, dimensions) spread like a standard normal.

    The additive recurrence of the root of x^(d + 1) = x + 1 (Roberts 2018), by the quantiles.
    """
    root = 1.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    return np.asarray(ndtri((0.5 + np.arange(1, number + 1)[:, None] * steps) % 1.0))
