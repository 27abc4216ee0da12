"""Prediction intervals for a new site, by random effects.

For each of four metrics a site's value is N(mu, tau^2) and its estimate N(value, v), v known; mu is
flat, tau half-t with 3 degrees of freedom, and both are integrated over, never plugged in (Higgins,
Thompson & Spiegelhalter 2009, JRSS A 172:137; for metrics of models Debray et al. 2013, Stat Med
32:3158, and Riley et al. 2016, BMJ 353:i3140). TRIPOD-Cluster (BMJ 2023;380:e071018) asks for it.

Estimates are scores about the pooled value, weights and variances those of the pooled scores: so
they are linear in the counts, their noise is known, and no weight goes with a site's luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from fedcal.calibrators.histogram_binning import norm_sub
from fedcal.core.pages import Table
from fedcal.core.printable import listed
from fedcal.core.types import Floats
from fedcal.evaluation.histogram import divide
from fedcal.evaluation.sites import effects

FEWEST = 6
"""Sites from which on such an interval can be verified."""

METRICS = ("calibration_in_the_large", "log_slope", "logit_auc", "log_observed_expected")

RELATIVE, MOST = 2.0, 1.0
"""Scale of tau's prior, in standard errors that a site typically has, and at most: with it 92 to
98 % of new sites are inside, but for up to 99.8 % where I^2 = .2 (tau is indistinguishable from 0)
and down to 88 % for slopes that differ much under noise (`fedcal reproduce no-site-harmed`)."""

_DEGREES, _POINTS = 3, 90
_LEAST_ROWS, _LEAST_SHARE = 1.0, 0.2
_WIDE = np.array([2.0, 1.0])
"""Std of the prior of the common offset and log slope: all but flat."""


def site_metrics(counts: Floats, edges: Floats, root: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Return each metric's value at each site, and its variance by rows and noise, (..., S).

    Parameters
    ----------
    counts
        (..., S, 2, buckets) rows by site, outcome and bucket
    edges
        (buckets + 1,) of a score of two outcomes
    root
        (buckets, variates) of the noise of each row of counts
    """
    power = root @ root.T
    every, whole = counts.sum(axis=-2), counts.sum(axis=-3)
    rows = effects.plausible(every, 2 * np.diag(power))
    total = norm_sub(every.sum(axis=-2))[..., None, :]
    events = norm_sub(whole[..., 1, :])[..., None, :]
    x = effects.bucket_log_odds(edges, total[..., 0, :])[..., None, :]
    score = expit(x)

    def noise(of_none: Floats, of_one: Floats) -> Floats:
        parts = [(w @ power * w).sum(axis=-1) for w in (of_none, of_one)]
        return np.asarray(parts[0] + parts[1])

    def added(of_none: Floats, of_one: Floats) -> Floats:
        parts = [counts[..., k, :] * w for k, w in enumerate((of_none, of_one))]
        return np.asarray((parts[0] + parts[1]).sum(axis=-1))

    # offset beside a slope of 1
    offset, both = np.zeros((*counts.shape[:-3], 1, 1)), whole.sum(axis=-2)[..., None, :]
    for _ in range(30):
        p = expit(offset + x)
        slack = (whole[..., 1, None, :] - both * p).sum(axis=-1, keepdims=True)
        info = np.maximum((total * p * (1 - p)).sum(axis=-1, keepdims=True), _LEAST_ROWS)
        offset = offset + np.clip(slack / info, -0.5, 0.5)
    p = expit(offset + x)
    info = np.maximum((rows * p * (1 - p)).sum(axis=-1), _LEAST_ROWS / 4)
    large = offset[..., 0] + added(-p, 1 - p) / info, (info + noise(-p, 1 - p)) / info**2

    # observed over expected
    expected = np.maximum((total * score).sum(axis=-1, keepdims=True), _LEAST_ROWS)
    ratio = np.maximum(events.sum(axis=-1, keepdims=True), _LEAST_ROWS) / expected
    share, base = np.clip(divide(events, total, 0.5), 0, 1), ratio[..., 0]
    base = base * np.maximum((rows * score).sum(axis=-1), _LEAST_ROWS / 2)
    miss, hit = -ratio * score, 1 - ratio * score
    by_rows = (rows * (share * hit**2 + (1 - share) * miss**2)).sum(axis=-1)
    by_rows = np.maximum(by_rows, _LEAST_ROWS / 4)  # a site without rows is not sure of anything
    times = 1 + added(miss, hit) / base
    log_ratio = np.log(ratio[..., 0]) + np.log(np.maximum(times, _LEAST_SHARE))
    observed = log_ratio, (by_rows + noise(miss, hit)) / base**2

    fit = effects.effects(counts, edges, root, 2, _WIDE)
    sure = effects.inverse(fit.information, 1e-6)
    at = fit.at[..., None, :] + (sure @ fit.scores[..., None])[..., 0]
    variance = sure + sure @ fit.noise @ sure
    slope = at[..., 1], variance[..., 1, 1]

    # ranking: within a bucket outcomes are not tied, but ordered by the common slope
    tie = 0.5 + np.minimum(np.exp(fit.at[..., None, 1:]) * effects.bucket_widths(edges) / 12, 0.3)
    ones, none = (
        divide(n, n.sum(-1, keepdims=True) + 0 * n, 1 / n.shape[-1])
        for n in (events, norm_sub(whole[..., 0, :])[..., None, :])
    )
    above = np.cumsum(none, axis=-1) - none * (1 - tie)
    area = (above * ones).sum(axis=-1, keepdims=True)
    above, below = above - area, 1 - np.cumsum(ones, axis=-1) + ones * tie - area
    positive, negative = (
        np.maximum(effects.plausible(counts[..., k, :], np.diag(power)).sum(-1), _LEAST_ROWS)
        for k in (1, 0)
    )
    zero = np.zeros_like(above)
    moved = added(zero, above) / positive + added(below, zero) / negative
    v = (
        (ones * above**2).sum(-1) / positive
        + (none * below**2).sum(-1) / negative
        + noise(zero, above) / positive**2
        + noise(below, zero) / negative**2
    )
    area = np.clip(area[..., 0], 1e-3, 1 - 1e-3)  # noise may part outcomes wholly
    auc = np.clip(area + moved, _LEAST_SHARE * area, 1 - _LEAST_SHARE * (1 - area))
    v = np.maximum(v, 1e-6 / np.minimum(positive, negative))  # outcomes that scores part wholly
    ranking = np.log(auc / (1 - auc)), v / (area * (1 - area)) ** 2
    return dict(zip(METRICS, (large, slope, ranking, observed), strict=True))


def next_site(counts: Floats, edges: Floats, root: Floats, names: Sequence[str]) -> dict[str, Any]:
    """Return predictions for a new site, in plain values; parameters as in `site_metrics`.

    Returns
    -------
    dict
        `sites`, their number; `verified`, whether they are `FEWEST` at least; and for each of
        `metrics` its `mean` and prediction interval `low` to `high` at a new site, `tau` with
        `tau_low` and `tau_high`, `i_squared`, and the sites `outside` the interval that the
        other sites predict for them, their own variance added (with at most 100 sites: None = not
        computed). Slope, AUC and ratio are on their own scales, slope and ratio clipped at 1/1000
        and 1000; tau is on the scale of the logarithm or the logit
    """
    metrics, sites = {}, len(names)
    for metric, (values, variances) in site_metrics(counts, edges, root).items():
        each = predicted(values, variances)
        outside = None
        if 2 < sites <= _LOOKED_AT:
            rest = np.array([np.delete(np.arange(sites), k) for k in range(sites)])
            left = predicted(values[rest], variances[rest], variances)
            off = (values < left.low) | (values > left.high)
            outside = [names[int(k)] for k in np.flatnonzero(off)]
        name, shown = _SHOWN[metric]
        ends = {k: float(shown(getattr(each, k))) for k in ("mean", "low", "high")}
        taus = {k: float(getattr(each, k)) for k in ("tau", "tau_low", "tau_high", "i_squared")}
        metrics[name] = {**ends, **taus, "outside": outside}
    return {"sites": sites, "verified": sites >= FEWEST, "metrics": metrics}


def sentence(prediction: Mapping[str, Any]) -> str:
    """Return the result of `next_site` in words."""
    intervals: list[str] = []
    hidden: list[str] = []
    for metric, name in _NAMES.items():
        low, high = (prediction["metrics"][metric][end] for end in ("low", "high"))
        wide = high > _WIDEST * low if metric in _RATIOS else high - low > _WIDEST_OF[metric]
        (hidden if wide else intervals).append(name if wide else f"{name} {low:.2f} to {high:.2f}")
    if not intervals:
        return f"A prediction for a new site like these {prediction['sites']} is not possible."
    shown = listed(intervals)
    shown += f"; {listed(hidden, ' and ')} cannot be predicted" * bool(hidden)
    doubt = (
        ""
        if prediction["verified"]
        else f"; with fewer than {FEWEST} sites this cannot be verified"
    )
    return (
        f"At a new site like these {prediction['sites']} expect {shown} (95 % prediction{doubt})."
    )


def table(prediction: Mapping[str, Any]) -> Table:
    """Return the result of `next_site` as a table."""
    rows = [
        (
            name,
            *(f"{one[key]:.2f}" for key in ("mean", "low", "high")),
            f"{one['tau']:.2f} ({one['tau_low']:.2f} to {one['tau_high']:.2f})",
            f"{100 * one['i_squared']:.0f}",
            "not computed" if one["outside"] is None else ", ".join(one["outside"]) or "none",
        )
        for metric, name in _NAMES.items()
        for one in [prediction["metrics"][metric]]
    ]
    note = (
        "95 % prediction intervals by random effects, integrated over the variance between sites: "
        "tau is the standard deviation over sites (of logarithms, and of the AUC's log odds), I^2 "
        "its fraction of the observed variance. The offset is calibration in the large, the term "
        "to add to the log odds; above 0 the model predicts too low. Outside are sites whose value "
        "the other sites would not have predicted."
    )
    if not prediction["verified"]:
        note += f" With fewer than {FEWEST} sites this cannot be verified."
    columns = ("", "mean", "low", "high", "tau (95 %)", "I^2, %", "outside")
    return Table(f"At a new site, from {prediction['sites']} sites", columns, tuple(rows), note)


_NAMES = {
    "calibration_slope": "calibration slope",
    "observed_expected": "observed / expected",
    "calibration_in_the_large": "offset of the log odds",
    "roc_auc": "AUC",
}
_RATIOS, _WIDEST = ("calibration_slope", "observed_expected"), 100.0
_WIDEST_OF = {"calibration_in_the_large": 10.0, "roc_auc": 0.8}
"""Wider intervals are uninformative: they are in the table, not in the sentence."""

_LOOKED_AT = 100
_FURTHEST = 1000.0


def _ratio(logarithm: float) -> float:
    """Return the ratio of a logarithm, clipped: noise that drowns the sites gives 0 to infinity."""
    return float(np.exp(np.clip(logarithm, -np.log(_FURTHEST), np.log(_FURTHEST))))


_SHOWN: Mapping[str, tuple[str, Any]] = {
    "calibration_in_the_large": ("calibration_in_the_large", np.asarray),
    "log_slope": ("calibration_slope", _ratio),
    "logit_auc": ("roc_auc", expit),
    "log_observed_expected": ("observed_expected", _ratio),
}
"""Metric -> its name and the value that people read."""


@dataclass(frozen=True, eq=False)
class Predicted:
    """Prediction for a new site; leading dimensions are federations.

    Attributes
    ----------
    mean
        (...) mean over sites
    low, high
        (...) ends of the 95 % prediction interval
    tau, i_squared
        (...) posterior medians of the std over sites, and of its fraction of the variance that
        sites' own rows and the noise show
    tau_low, tau_high
        (...) 95 % credible interval of tau
    """

    mean: Floats
    low: Floats
    high: Floats
    tau: Floats
    tau_low: Floats
    tau_high: Floats
    i_squared: Floats


def predicted(values: Floats, variances: Floats, own: Floats | None = None) -> Predicted:
    """Integrate over mean and tau.

    Parameters
    ----------
    values, variances
        (..., S) of the sites
    own
        (...) variance of the new site's own estimate, where that is what is predicted
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
    spread = np.sqrt(1 / total + tau**2 + (0.0 if own is None else own[..., None]))
    low, high = (_quantile(p, mean, spread, q) for q in (0.025, 0.975))
    places = ((np.cumsum(p, axis=-1) >= q).argmax(axis=-1) for q in (0.5, 0.025, 0.975))
    middle, least, greatest = (np.take_along_axis(tau, k[..., None], -1)[..., 0] for k in places)
    share = middle**2 / (middle**2 + typical[..., 0])
    return Predicted((p * mean).sum(axis=-1), low, high, middle, least, greatest, share)


def _quantile(p: Floats, mean: Floats, spread: Floats, q: float) -> Floats:
    """Return a quantile of mixtures of normals over the last axis, by bisection."""
    low, high = (mean - 12 * spread).min(axis=-1), (mean + 12 * spread).max(axis=-1)
    for _ in range(60):
        middle = (low + high) / 2
        below = (p * ndtr((middle[..., None] - mean) / spread)).sum(axis=-1) < q
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)
