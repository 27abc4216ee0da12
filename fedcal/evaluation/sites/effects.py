"""Effects of sites in counts by site: scores of recalibration, linear in the counts.

A site's own maximum likelihood is infinite where it has few rows (56 % of sites of 5), and a ratio
of noisy counts has no mean. The score of the likelihood at a fit to all sites has neither fault:
for site s with the parameters a + theta, a the common fit,

    U_s ~ N(I_s theta, I_s + N_s),

I_s the expected information of its rows and N_s the known covariance of the release's noise.

Prediction intervals for a new site, by random effects.

For each of three metrics a site's value is N(mu, tau^2) and its estimate N(value, v), v known; mu
is flat, tau half-t with 3 degrees of freedom, and both are integrated over, never plugged in
(Higgins, Thompson & Spiegelhalter 2009, JRSS A 172:137; for metrics of models Debray et al. 2013,
Stat Med 32:3158, and Riley et al. 2016, BMJ 353:i3140). TRIPOD-Cluster (BMJ 2023;380:e071018) asks
for it.

Estimates are scores about the pooled value, weights and variances those of the pooled scores: so
they are linear in the counts, their noise is known, and no weight goes with a site's luck.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from fedcal.core.naming import listed
from fedcal.core.numerics import Floats
from fedcal.core.pages import Table
from fedcal.evaluation.sites.buckets import fractions, inverse, plausible
from fedcal.evaluation.sites.site_tests import Sites, placements, ranking, squares

FEWEST = 6
"""Sites from which on such an interval can be verified."""

RELATIVE, MOST = 2.0, 1.0
"""Scale of tau's prior, in standard errors that a site typically has, and at most: with it 90 to
98 % of new sites are inside, but for nearly all where sites hardly differ, or noise drowns how."""

_DEGREES, _POINTS = 3, 90
_LEAST_ROWS, _LEAST_SHARE = 1.0, 0.2
_LOUD = 40.0
"""Factor of noise in a site's own fit, so that only sites whose rows drown it have one: where rates
differ much, one common fit reads slopes of 1 as .7 (adult-income, dirichlet:0.5)."""
_FLATTEST = 0.1
"""Common slope, at least, that the logarithms of slopes are about."""


@dataclass(frozen=True, eq=False)
class Effects:
    """Scores of sites at a common fit of d parameters; see `effects`.

    Attributes
    ----------
    at
        (d,) the common fit
    scores
        (S, d) U_s
    information
        (S, d, d) I_s
    noise
        (S, d, d) N_s
    """

    at: Floats
    scores: Floats
    information: Floats
    noise: Floats


def effects(sites: Sites, classes: int) -> Effects:
    """Return the scores of sites (S,) at the fit to their sum.

    Two classes: log odds x become o + exp(l) x, with the parameters (o, l). More: every logit is
    divided by the temperature exp(-l), with the parameter (l,). The log odds x of the largest
    probability then become about exp(l) (x + log k) - log k, k = (c - 1)^0.4 (exact where k equal
    rivals share the rest; the power was chosen on the fit halves of four shipped networks).
    """
    rivals = 0.0 if classes == 2 else 0.4 * float(np.log(classes - 1))
    free, power = (0, 1) if classes == 2 else (1,), 2 * np.diag(sites.root @ sites.root.T)
    rows, points = plausible(sites.counts.sum(axis=-2), power), sites.points + rivals
    expected, pooled = replace(sites, rows=rows, points=points), sites.together()
    pooled = replace(pooled, points=pooled.points + rivals)
    common = pooled.fit(free, np.array([-rivals, 1.0]))[0]
    common[1] = max(common[1], _FLATTEST)
    at = common + np.zeros((len(rows), 2))
    if classes == 2:  # scores bend with the offset: each site's are about its own
        at = replace(expected, root=_LOUD * sites.root).fit((0,), common)
    truth, own = expected.shares(at), list(free)
    directions = (expected.directions * np.array([[1.0], [common[1]]]))[..., own, :]
    information = squares(directions, rows * truth * (1 - truth))
    moved = (information @ (at - common)[:, own, None])[..., 0]
    noise = expected.distribution_of(truth, directions).variance - information
    scores = expected.score(truth, directions) + moved
    return Effects(np.array([common[0], np.log(common[1])])[own], scores, information, noise)


def site_metrics(sites: Sites) -> dict[str, tuple[Floats, Floats]]:
    """Return each metric's value at each site, and its variance by rows and noise, (S,)."""
    pooled, power = sites.together(), sites.root @ sites.root.T
    expected = replace(sites, rows=plausible(sites.counts.sum(axis=-2), 2 * np.diag(power)))
    fit, truth = effects(sites, 2), sites.shares(pooled.fit())
    sure = inverse(fit.information, 1e-6)
    slope = fit.at[1] + (sure @ fit.scores[..., None])[:, 1, 0]
    variance = (sure + sure @ fit.noise @ sure)[:, 1, 1]

    cells, one = pooled.cells[0], sites.directions[..., :1, :]
    ratio = np.maximum(cells[1].sum(), _LEAST_ROWS) / np.maximum(
        (pooled.rows * pooled.shares()).sum(), _LEAST_ROWS
    )
    share = ratio * sites.shares()
    events = np.maximum((expected.rows * share).sum(axis=-1), _LEAST_ROWS / 2)
    times = 1 + sites.score(share, one)[:, 0] / events
    observed = np.log(ratio) + np.log(np.maximum(times, _LEAST_SHARE))
    by_rows = expected.distribution_of(share, one, truth).variance[:, 0, 0]

    ranks, parts = placements(cells), fractions(cells, 1 / cells.shape[-1])
    ranks = ranks - (parts * ranks)[1].sum()
    each = [plausible(sites.counts[:, k], np.diag(power)).sum(axis=-1) for k in (0, 1)]
    rows = np.maximum(np.stack(each, axis=-1), _LEAST_ROWS)
    area = np.clip(ranking(pooled)[0], 1e-3, 1 - 1e-3)  # noise may part outcomes wholly
    auc = area + ((sites.counts * ranks).sum(axis=-1) / rows).sum(axis=-1)
    auc = np.clip(auc, _LEAST_SHARE * area, 1 - _LEAST_SHARE * (1 - area))
    spread = sites.most * (parts * ranks**2).sum(axis=-1) / rows
    spread = (spread + ((ranks @ sites.root) ** 2).sum(axis=-1) / rows**2).sum(axis=-1)
    spread = np.maximum(spread, 1e-6 / rows.min(axis=-1))  # outcomes that scores part wholly
    return {
        "calibration_slope": (slope, variance),
        # a site without rows is not sure of anything
        "observed_expected": (observed, np.maximum(by_rows, _LEAST_ROWS / 4) / events**2),
        "roc_auc": (np.log(auc / (1 - auc)), spread / (area * (1 - area)) ** 2),
    }


def next_site(sites: Sites) -> dict[str, Any]:
    """Return predictions for a new site like these (S,), in plain values.

    Returns
    -------
    dict
        `sites`, their number; `verified`, whether they are `FEWEST` at least; and for each of
        `metrics` its `mean` and prediction interval `low` to `high` at a new site, slope and ratio
        clipped at 1/1000 and 1000
    """
    metrics, number = {}, len(sites.rows)
    for metric, (values, variances) in site_metrics(sites).items():
        _, shown, _ = _SHOWN[metric]
        metrics[metric] = {k: float(shown(x)) for k, x in predicted(values, variances).items()}
    return {"sites": number, "verified": number >= FEWEST, "metrics": metrics}


def next_site_sentence(prediction: Mapping[str, Any]) -> str:
    """Return the result of `next_site` in words."""
    intervals: list[str] = []
    hidden: list[str] = []
    for metric, (name, read, widest) in _SHOWN.items():
        low, high = (prediction["metrics"][metric][end] for end in ("low", "high"))
        wide = high > widest * low if read is _ratio else high - low > widest
        (hidden if wide else intervals).append(name if wide else f"{name} {low:.2f} to {high:.2f}")
    if not intervals:
        return f"A prediction for a new site like these {prediction['sites']} is not possible."
    shown = listed(intervals)
    shown += f"; {listed(hidden, ' and ')} cannot be predicted" * bool(hidden)
    sites, doubt = prediction["sites"], f"; with fewer than {FEWEST} sites this cannot be verified"
    doubt *= not prediction["verified"]
    return f"At a new site like these {sites} expect {shown} (95 % prediction{doubt})."


def next_site_table(prediction: Mapping[str, Any]) -> Table:
    """Return the result of `next_site` as a table."""
    rows = [
        (name, *(f"{prediction['metrics'][metric][key]:.2f}" for key in ("mean", "low", "high")))
        for metric, (name, _, _) in _SHOWN.items()
    ]
    note = (
        "95 % prediction intervals by random effects, integrated over the variance between sites."
    )
    if not prediction["verified"]:
        note += f" With fewer than {FEWEST} sites this cannot be verified."
    columns = ("", "mean", "low", "high")
    return Table(f"At a new site, from {prediction['sites']} sites", columns, tuple(rows), note)


_FURTHEST = 1000.0


def _ratio(logarithm: float) -> float:
    """Return the ratio of a logarithm, clipped: noise that drowns the sites gives 0 to infinity."""
    return float(np.exp(np.clip(logarithm, -np.log(_FURTHEST), np.log(_FURTHEST))))


_SHOWN: Mapping[str, tuple[str, Any, float]] = {
    "calibration_slope": ("calibration slope", _ratio, 100.0),
    "observed_expected": ("observed / expected", _ratio, 100.0),
    "roc_auc": ("AUC", expit, 0.8),
}
"""Metric -> its name in words, the value that people read, the widest interval in words: a quotient
of both ends where it is a ratio, else their difference. The table has them all."""


def predicted(values: Floats, variances: Floats) -> dict[str, Floats]:
    """Return `mean` over sites and 95 % prediction interval, `low` to `high`, of a new site.

    Mean and tau are integrated over, by the values and variances (..., S) of the sites; leading
    dimensions are federations.
    """
    typical = np.exp(np.log(variances).mean(axis=-1, keepdims=True))
    scale = np.minimum(RELATIVE * np.sqrt(typical), MOST)
    grid = np.concatenate([[0.0], np.geomspace(0.03, 30.0, _POINTS)])
    width = np.gradient(grid)
    tau = grid * scale
    weight = 1 / (variances[..., None, :] + tau[..., None] ** 2)
    total = weight.sum(axis=-1)
    mean = (weight * values[..., None, :]).sum(axis=-1) / total
    off = values[..., None, :] - mean[..., None]
    log = (np.log(weight).sum(axis=-1) - np.log(total) - (weight * off**2).sum(axis=-1)) / 2
    log = log + np.log(width) - (_DEGREES + 1) / 2 * np.log1p(grid**2 / _DEGREES)
    p = np.exp(log - log.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    spread = np.sqrt(1 / total + tau**2)
    low, high = (_quantile(p, mean, spread, q) for q in (0.025, 0.975))
    return {"mean": (p * mean).sum(axis=-1), "low": low, "high": high}


def _quantile(p: Floats, mean: Floats, spread: Floats, q: float) -> Floats:
    """Return a quantile of mixtures of normals over the last axis, by bisection."""
    low, high = (mean - 12 * spread).min(axis=-1), (mean + 12 * spread).max(axis=-1)
    for _ in range(60):
        middle = (low + high) / 2
        below = (p * ndtr((middle[..., None] - mean) / spread)).sum(axis=-1) < q
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)
