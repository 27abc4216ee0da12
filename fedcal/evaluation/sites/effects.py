"""Effects of sites in counts by site: scores of recalibration, linear in the counts.

A site's own maximum likelihood is infinite where it has few rows (56 % of sites of 5), and a ratio
of noisy counts has no mean. The score of the likelihood at a fit to all sites has neither fault:
for site s with the parameters a + theta, a the common fit,

    U_s ~ N(I_s theta, I_s + N_s),

I_s the expected information of its rows and N_s the known covariance of the release's noise.

Prediction intervals for a new site, by random effects.

For each of four metrics a site's value is N(mu, tau^2) and its estimate N(value, v), v known; mu is
flat, tau half-t with 3 degrees of freedom, and both are integrated over, never plugged in (Higgins,
Thompson & Spiegelhalter 2009, JRSS A 172:137; for metrics of models Debray et al. 2013, Stat Med
32:3158, and Riley et al. 2016, BMJ 353:i3140). TRIPOD-Cluster (BMJ 2023;380:e071018) asks for it.

Estimates are scores about the pooled value, weights and variances those of the pooled scores: so
they are linear in the counts, their noise is known, and no weight goes with a site's luck.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from fedcal.calibrators.histogram_binning import norm_sub
from fedcal.core.naming import listed
from fedcal.core.numerics import Floats
from fedcal.core.pages import Table
from fedcal.metrics.histogram import divide

CUTS: dict[str, Floats] = {
    "positive": np.array([-5.0, -3.2, -1.8, -0.8, 0.0, 0.8, 1.8, 3.2, 5.0]),
    "confidence": np.array([-0.5, 0.3, 1.1, 2.0, 3.2, 4.8, 6.6, 9.0, 12.0]),
}
"""Score -> log odds that part its ten buckets: the fewest under which a fit to counts loses less
than 1e-4 log loss against one to rows (heart-disease, adult-income, imdb-binary, game-forecasts).
Confidences of overconfident networks have log odds of 10 and more."""

FINE = CUTS | {"positive": np.array([-5.0, -4.0, -3.2, -2.6, -2.0, -1.4, -0.8, 0.0, 0.8, 1.8, 3.4])}
"""Cuts for tests of each site: finer at low risks, where an outcome is rare and scores crowd. At
5,000 patients with a prevalence of 10 % gaps of 2 points are seen, with `CUTS` of 9 or more."""

SPIKE = 0.01
"""Widest bucket, in log odds, that holds one value of the score."""

_STEPS, _NEARER = 30, 4
_LONGEST = 0.5
"""Step of a fit, in a parameter's own unit."""

_FIRM = 6.0
"""Variances of the noise by which differences of counts must exceed it to be kept: what is kept of
them keeps as much of their noise."""

_QUIET = 30.0
"""Weight of noise in a site's own fit, so that only sites whose rows drown it have one: where
rates differ much, one common fit reads slopes of 1 as .7 (adult-income, dirichlet:0.5)."""

_NARROWEST = 1e-3
_STEEPEST = 1.5
"""Slope of the log density of log odds, at most, that rows are taken to have inside a bucket."""


def edges_of(score: str) -> Floats:
    """Return the edges of the ten buckets of a score, from 0 to 1, (11,)."""
    return np.round(np.concatenate([[0.0], expit(CUTS[score]), [1.0]]), 12)


def changed(x: Floats, at: Floats, classes: int) -> tuple[Floats, Floats]:
    """Return log odds x (..., n) changed by the parameters `at` (..., d), and their derivatives.

    Two classes: log odds x become o + exp(l) x, with the parameters (o, l). More: every logit is
    divided by the temperature exp(-l), with the parameter (l,). The log odds x of the largest
    probability then become about exp(l) (x + log k) - log k, k = (c - 1)^0.4 (exact where k equal
    rivals share the rest; the power was chosen on the fit halves of four shipped networks).
    Derivatives by the parameters are (..., d, n).
    """
    rivals = 0.0 if classes == 2 else 0.4 * float(np.log(classes - 1))
    by_slope = np.exp(at[..., -1:]) * (x + rivals)
    if classes == 2:
        return at[..., :1] + by_slope, np.stack([np.ones_like(by_slope), by_slope], axis=-2)
    return by_slope - rivals, by_slope[..., None, :]


@dataclass(frozen=True, eq=False)
class Effects:
    """Scores of sites at a common fit. Leading dimensions are of federations.

    Attributes
    ----------
    at
        (..., d) the common fit
    scores
        (..., S, d) U_s
    information
        (..., S, d, d) I_s
    noise
        (..., S, d, d) N_s
    rows
        (..., S) rows of each site, estimated under noise
    """

    at: Floats
    scores: Floats
    information: Floats
    noise: Floats
    rows: Floats


def bucket_widths(edges: Floats) -> Floats:
    """Return bucket widths in log odds, (buckets,); at both ends twice the neighbour's."""
    inner = np.diff(np.log(edges[1:-1] / (1 - edges[1:-1])))
    wide = inner[inner > SPIKE] if (inner > SPIKE).any() else inner
    return np.concatenate([2 * wide[:1], inner, 2 * wide[-1:]])


def bucket_log_odds(edges: Floats, rows: Floats) -> Floats:
    """Return mean log odds of each bucket's rows, (..., buckets), from counts of all sites."""
    middles, width, slope = within_buckets(edges, rows)
    bent = np.abs(slope) * width > 1e-3
    steep = np.where(bent, slope, 1.0)
    off = width / 2 / np.tanh(steep * width / 2) - 1 / steep
    return np.asarray(middles + np.where(bent, off, 0.0))


def within_buckets(
    edges: Floats, rows: Floats, least: float = -np.inf
) -> tuple[Floats, Floats, Floats]:
    """Return middle, width and slope of the log density of each bucket, in log odds.

    No log odds are below `least`.
    Inside a bucket the log density is taken to be linear, with the slope that the neighbours show:
    at the middles a slope of .58 would be read as .77 where scores crowd at the ends (imdb-binary).
    """
    width = bucket_widths(edges)
    first = np.log(edges[1] / (1 - edges[1]))
    upper = np.maximum(first - width[0] + np.cumsum(width), least + _NARROWEST)
    width = np.diff(upper, prepend=max(first - width[0], least))
    width, middles = np.maximum(width, _NARROWEST), upper - width / 2
    total = rows.sum(axis=-1, keepdims=True)
    dense = np.log((rows + 0.5 + 0.05 * np.sqrt(total)) / width)
    slope, wide = np.zeros_like(dense), np.flatnonzero(width > SPIKE)
    if len(wide) > 1:
        slope[..., wide] = np.gradient(dense[..., wide], middles[wide], axis=-1)
    return middles, width, np.clip(slope, -_STEEPEST, _STEEPEST)


def effects(counts: Floats, edges: Floats, root: Floats, classes: int, spread: Floats) -> Effects:
    """Return the scores of all sites at the fit to their sum.

    Parameters
    ----------
    counts
        (..., S, 2, buckets) rows by site, outcome and bucket; noisy ones may be negative
    edges
        (buckets + 1,) from 0 to 1
    root
        (buckets, variates): each row of counts has the noise `root @ z`; see `Histogram`
    classes
        number of classes of the model
    spread
        (d,) std of the prior of the common fit, about 0; a site's own fit about it has 3/4 of it
    """
    power = root @ root.T
    every = counts.sum(axis=-2)  # rows by bucket, (..., S, buckets)
    x = bucket_log_odds(edges, norm_sub(every.sum(axis=-2)))
    if classes > 2:  # no largest probability is below 1 / c
        x = np.maximum(x, np.log(1.02 / (classes - 1.02)))
    sites = counts.shape[-3]
    overall = counts.sum(axis=-3)
    at = np.zeros((*counts.shape[:-3], len(spread)))
    prior = np.diag(1 / np.asarray(spread) ** 2)
    sure = norm_sub(overall.sum(axis=-2))
    for _ in range(_STEPS):  # of the noise's own weight: noise alone moves nothing
        score, info, noise = _scores(classes, at, x, overall, sure, sites * power)
        lever = info @ inverse(info + noise)
        gain = (lever @ score[..., None])[..., 0] - at @ prior
        step = np.linalg.solve(lever @ info + prior, gain[..., None])[..., 0]
        at = at + np.clip(step, -_LONGEST, _LONGEST)
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    rows = plausible(every, 2 * np.diag(power))
    near, x = at[..., None, :] + np.zeros((*counts.shape[:-2], len(spread))), x[..., None, :]
    apart = prior / 0.75**2
    for k in range(_NEARER + 1):  # scores bend: each site's about its own fit, shrunk to the common
        score, info, noise = _scores(classes, near, x, counts, rows, power)
        score = score + (info @ (near - at[..., None, :])[..., None])[..., 0]
        if k < _NEARER:
            lever = info @ inverse(info + _QUIET * noise)
            own = np.linalg.solve(lever @ info + apart, lever @ score[..., None])[..., 0]
            near = near + np.clip(at[..., None, :] + own - near, -_LONGEST, _LONGEST)
    return Effects(at, score, info, noise, rows.sum(axis=-1))


def _scores(
    classes: int, at: Floats, x: Floats, counts: Floats, rows: Floats, power: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return score (..., d), information and noise covariance (..., d, d)."""
    log_odds, slopes = changed(x, at, classes)
    p = expit(log_odds)
    slack = counts[..., 1, :] - counts.sum(axis=-2) * p
    score = (slopes * slack[..., None, :]).sum(axis=-1)
    weight = rows * p * (1 - p)
    info = (slopes * weight[..., None, :]) @ slopes.mT
    both = (slopes * (1 - p)[..., None, :], slopes * p[..., None, :])
    noise = sum(w @ power @ w.mT for w in both)
    return score, info, np.broadcast_to(noise, info.shape)


def inverse(matrices: Floats, least: float = 1e-9) -> Floats:
    """Return the inverse of (..., d, d), singular if all scores are alike and without noise."""
    least = least + 1e-12 * np.trace(matrices, axis1=-2, axis2=-1)[..., None, None]
    return np.asarray(np.linalg.inv(matrices + least * np.eye(matrices.shape[-1])))


def fractions(rows: Floats, empty: float = 0.0) -> Floats:
    """Return the fraction of rows in each bucket, (..., buckets); `empty` without rows."""
    return divide(rows, rows.sum(axis=-1, keepdims=True) + 0 * rows, empty)


def plausible(every: Floats, variance: Floats) -> Floats:
    """Return rows of each site by bucket, (..., S, buckets), not negative.

    Numbers of rows are shrunk to their mean and shapes to the federation's, as far as noise
    explains what they differ by: weights that follow a site's own noise would go with its score
    (100 sites of 30 rows at epsilon = 1: a log slope of -.35 was read as -.58,
    and -.52 as -.90 where sites differ).
    """
    shape = norm_sub(every.sum(axis=-2, keepdims=True))
    share = fractions(shape, 1 / every.shape[-1])
    total = every.sum(axis=-1, keepdims=True)
    mean = total.mean(axis=-2, keepdims=True)
    total = np.maximum(mean + _shrunk(total - mean, variance.sum()), 0.0)
    noise = variance.mean()  # and sampling variance, as far as noise hides it
    chance = np.maximum(mean, 0.0) / every.shape[-1]
    noise = noise + divide(noise * chance, noise + chance)
    return norm_sub(total * share + _shrunk(every - total * share, noise))


def _shrunk(off: Floats, variance: Floats | float) -> Floats:
    """Return differences (..., S, m), shrunk where noise explains them many times over."""
    size = (off**2).mean(axis=(-1, -2), keepdims=True)
    most = _FIRM * variance
    return np.asarray(off * np.maximum(1 - divide(most + 0 * size, size, np.inf), 0.0))


# -- a new site -----------------------------------------------------------------------------------

FEWEST = 6
"""Sites from which on such an interval can be verified."""

LARGE = "calibration_in_the_large"
METRICS = (LARGE, "log_slope", "logit_auc", "log_observed_expected")

RELATIVE, MOST = 2.0, 1.0
"""Scale of tau's prior, in standard errors that a site typically has, and at most: with it 92 to
98 % of new sites are inside, but for up to 99.8 % where I^2 = .2 (tau is indistinguishable from 0)
and down to 88 % for slopes that differ much under noise (measured at commit 9d1acd12)."""

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
    every, overall = counts.sum(axis=-2), counts.sum(axis=-3)
    rows = plausible(every, 2 * np.diag(power))
    total = norm_sub(every.sum(axis=-2))[..., None, :]
    events = norm_sub(overall[..., 1, :])[..., None, :]
    x = bucket_log_odds(edges, total[..., 0, :])[..., None, :]
    score = expit(x)

    def noise(of_none: Floats, of_one: Floats) -> Any:
        return (of_none @ power * of_none).sum(axis=-1) + (of_one @ power * of_one).sum(axis=-1)

    def added(of_none: Floats, of_one: Floats) -> Any:
        return (counts[..., 0, :] * of_none + counts[..., 1, :] * of_one).sum(axis=-1)

    # offset beside a slope of 1
    offset, both = np.zeros((*counts.shape[:-3], 1, 1)), overall.sum(axis=-2)[..., None, :]
    for _ in range(30):
        p = expit(offset + x)
        slack = (overall[..., 1, None, :] - both * p).sum(axis=-1, keepdims=True)
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

    fit = effects(counts, edges, root, 2, _WIDE)
    sure = inverse(fit.information, 1e-6)
    at = fit.at[..., None, :] + (sure @ fit.scores[..., None])[..., 0]
    variance = sure + sure @ fit.noise @ sure
    slope = at[..., 1], variance[..., 1, 1]

    # ranking: within a bucket outcomes are not tied, but ordered by the common slope
    tie = 0.5 + np.minimum(np.exp(fit.at[..., None, 1:]) * bucket_widths(edges) / 12, 0.3)
    no_events = norm_sub(overall[..., 0, :])[..., None, :]
    ones, none = (fractions(n, 1 / n.shape[-1]) for n in (events, no_events))
    above = np.cumsum(none, axis=-1) - none * (1 - tie)
    area = (above * ones).sum(axis=-1, keepdims=True)
    above, below = above - area, 1 - np.cumsum(ones, axis=-1) + ones * tie - area
    positive, negative = (
        np.maximum(plausible(counts[..., k, :], np.diag(power)).sum(-1), _LEAST_ROWS)
        for k in (1, 0)
    )
    zero = np.zeros_like(above)
    moved = added(zero, above) / positive + added(below, zero) / negative
    v = (ones * above**2).sum(-1) / positive + (none * below**2).sum(-1) / negative
    v = v + noise(zero, above) / positive**2 + noise(below, zero) / negative**2
    area = np.clip(area[..., 0], 1e-3, 1 - 1e-3)  # noise may part outcomes wholly
    auc = np.clip(area + moved, _LEAST_SHARE * area, 1 - _LEAST_SHARE * (1 - area))
    v = np.maximum(v, 1e-6 / np.minimum(positive, negative))  # outcomes that scores part wholly
    ranking = np.log(auc / (1 - auc)), v / (area * (1 - area)) ** 2
    return dict(zip(METRICS, (large, slope, ranking, observed), strict=True))


def next_site(counts: Floats, edges: Floats, root: Floats) -> dict[str, Any]:
    """Return predictions for a new site, in plain values; parameters as in `site_metrics`.

    Returns
    -------
    dict
        `sites`, their number; `verified`, whether they are `FEWEST` at least; and for each of
        `metrics` its `mean` and prediction interval `low` to `high` at a new site. Slope, AUC and
        ratio are on their own scales, slope and ratio clipped at 1/1000 and 1000
    """
    metrics, sites = {}, counts.shape[-3]
    for metric, (values, variances) in site_metrics(counts, edges, root).items():
        each = predicted(values, variances)
        name, _, shown, _ = _SHOWN[metric]
        metrics[name] = {k: float(shown(end)) for k, end in each.items()}
    return {"sites": sites, "verified": sites >= FEWEST, "metrics": metrics}


def next_site_sentence(prediction: Mapping[str, Any]) -> str:
    """Return the result of `next_site` in words."""
    intervals: list[str] = []
    hidden: list[str] = []
    for metric, name, read, widest in _SHOWN.values():
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
        for metric, name, _, _ in _SHOWN.values()
    ]
    note = (
        "95 % prediction intervals by random effects, integrated over the variance between sites. "
        "The offset is calibration in the large, the term to add to the log odds; above 0 the "
        "model predicts too low."
    )
    if not prediction["verified"]:
        note += f" With fewer than {FEWEST} sites this cannot be verified."
    columns = ("", "mean", "low", "high")
    return Table(f"At a new site, from {prediction['sites']} sites", columns, tuple(rows), note)


_FURTHEST = 1000.0


def _ratio(logarithm: float) -> float:
    """Return the ratio of a logarithm, clipped: noise that drowns the sites gives 0 to infinity."""
    return float(np.exp(np.clip(logarithm, -np.log(_FURTHEST), np.log(_FURTHEST))))


_SHOWN: Mapping[str, tuple[str, str, Any, float]] = {
    "log_slope": ("calibration_slope", "calibration slope", _ratio, 100.0),
    "log_observed_expected": ("observed_expected", "observed / expected", _ratio, 100.0),
    LARGE: (LARGE, "offset of the log odds", np.asarray, 10.0),
    "logit_auc": ("roc_auc", "AUC", expit, 0.8),
}
"""Metric -> its name, that in words, the value that people read, the widest interval in words: a
quotient of both ends where it is a ratio, else their difference. The table has them all."""


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
