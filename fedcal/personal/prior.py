"""A site's prior from all other sites: random effects, integrated over their variance.

A site's parameters are N(mu, diag(tau^2)); mu is normal about "the model as it is", each tau
half-normal with a declared scale, and is integrated over, never plugged in: by restricted maximum
likelihood tau is 0 in 15 to 33 % of draws of 4 to 8 sites, which would force every site onto the
common calibrator (Higgins, Thompson & Spiegelhalter 2009, JRSS A 172:137). Where a release shows
nothing, for noise or for want of rows, the prior is the identity prior, and nothing else.

All of it is post-processing of a release; no rows are read.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from fedcal.core.checks import InputError, interval
from fedcal.core.numerics import Floats
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.effects import Effects, effects, inverse
from fedcal.personal.posterior import SitePrior, common_spread, identity_prior

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
        wanted sites, "" among them for a site that is not in the release; None = all

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
    counts, root = release.by_site
    most = max(np.abs(counts).max(initial=0.0), release.std)
    interval(f"[0, {_MOST_ROWS}]")("largest number of a site's rows, or std of the noise,", most)
    (spread, _), none = common_spread(classes), identity_prior(classes)

    def effects_of(some: Floats) -> Effects:
        return effects(some, asked.edges_read, root, classes, spread)

    def prior(some: Floats) -> SitePrior:
        law = predictive(effects_of(some), classes) if len(some) else (none.mean, none.cov)
        return SitePrior(*law, len(some))

    if only is None and len(names) > _MANY:
        laws = zip(*leave_one_out(effects_of(counts), classes), strict=True)
        rest = {n: SitePrior(*law, len(names) - 1) for n, law in zip(names, laws, strict=True)}
        return {"": prior(counts), **rest}
    wanted = ("", *names) if only is None else only
    rest_of = {n: np.delete(counts, names.index(n), axis=0) if n else counts for n in wanted}
    return {name: prior(some) for name, some in rest_of.items()}


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
