"""The temperature objective: its derivatives, each client's optimum, and searches (Luo et al.)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedcal.calibrators.histogram_binning import top_confidence
from fedcal.core.numerics import (
    LOG_A_LIMIT,
    by_class,
    label_entries,
    log_grid,
    row_sum,
    shifted,
    tempered_mean,
    tempered_moments,
)
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.metrics.binning import bin_index
from fedcal.personal.at_site import posterior
from fedcal.personal.prior import identity_prior
from fedcal.queries import (
    AccuracyGap,
    CalibrationGaps,
    ClippedNLL,
    MeanGaps,
    SiteEffects,
    TemperatureNewton,
    TemperatureScores,
    TemperatureUpdate,
)
from fedcal.queries.search import TemperatureQuery
from fedcal.queries.temperature import LIMIT


def shifted_logits(shards: Shards) -> Floats:
    """Return the rows' logits minus their maximum, computed once a run, (n, c)."""
    return shards.derived("shifted", lambda s: shifted(by_class(s.logits)))


def label_logits(shards: Shards) -> Floats:
    """Return the shifted logit of each row's label, computed once a run, (n,)."""
    return shards.derived("label", lambda s: label_entries(shifted_logits(s), s.labels))


def correct(shards: Shards) -> Floats:
    """1 where the first largest logit is the label's, computed once a run, (n,)."""
    return shards.derived(
        "correct", lambda s: (s.logits.argmax(axis=1) == s.labels).astype(np.float64)
    )


def temperature_newton(shards: Shards, query: TemperatureNewton) -> Floats:
    """Gradient and curvature of the negative log-likelihood in log a, a = 1/T.

    G = sum_i a (E_p[z_i] - z_i[y_i]) and H = sum_i a^2 Var_p[z_i], p = softmax(a z).

    Returns (clients, 2): G, H in nats.
    """
    a = math.exp(query.log_a)
    mean, var = tempered_moments(shifted_logits(shards), a)
    g = a * (mean - label_logits(shards))
    return np.stack([shards.sum_rows(g), shards.sum_rows(a * a * var)], axis=1)


def temperature_scores(shards: Shards, query: TemperatureScores) -> Floats:
    """S_k(T) = sum_i a (E_p[z_i] - z_i[y_i]), a = 1/T, on a public grid of temperatures.

    The root in T of the federation's sum is the pooled optimum: the score is a times the
    derivative of the negative log-likelihood in a, which is monotone.

    Returns (clients, points) in nats.
    """
    log_t = log_grid(query.low, query.high, query.points)
    nodes = score_nodes(query, shards.classes)
    if len(nodes) >= query.points:
        return _scores_at(shards, log_t)
    out = np.zeros((shards.clients, query.points))
    # term by term, and not as a matrix product, whose bits may depend on how many clients there are
    for score, weight in zip(_scores_at(shards, nodes).T, interpolation(nodes, log_t), strict=True):
        out += score[:, None] * weight
    return out


def _scores_at(shards: Shards, log_t: Floats) -> Floats:
    """Return each client's score at some temperatures, (clients, temperatures)."""
    z, of_label = shifted_logits(shards), label_logits(shards)
    out = np.empty((len(log_t), shards.clients))
    for t, a in enumerate(np.exp(-log_t)):
        out[t] = shards.sum_rows(a * (tempered_mean(z, a) - of_label))
    return out.T


def score_nodes(query: TemperatureScores, classes: int) -> Floats:
    """Return the logarithms of the temperatures between which a polynomial gives the score.

    A row's score is analytic in log T where sum_j exp(a z_j) is not 0 for complex a. If all other
    classes are equally far from the largest, a zero has the angle atan(pi / log(c - 1)); other rows
    have theirs farther from the real axis (tried, not proven). So the polynomial through Chebyshev
    nodes converges like rho^-nodes, rho of the largest ellipse in that strip (Trefethen 2013,
    theorem 8.2). Nodes are enough for 1e-12; rows made to be hard show 2e-11.
    """
    half = math.log(query.high / query.low) / 2
    width = math.atan(math.pi / math.log(classes - 1)) if classes > 2 else math.pi / 2
    many = math.ceil(math.log(1e12) / math.asinh(width / half))
    angles = np.pi * (np.arange(many) + 0.5) / many
    return math.log(query.low * query.high) / 2 + half * np.cos(angles)


def interpolation(nodes: Floats, at: Floats) -> Floats:
    """Return the weight of the value at each Chebyshev node, (nodes, points).

    Barycentric formula of the first kind of nodes (Berrut and Trefethen 2004, section 5).
    """
    angles = np.pi * (np.arange(len(nodes)) + 0.5) / len(nodes)
    signed = np.sin(angles) * (-1.0) ** np.arange(len(nodes))
    apart = at - nodes[:, None]
    met = apart == 0
    weights = signed[:, None] / np.where(met, 1.0, apart)
    weights = np.where(met.any(axis=0), met, weights)
    return np.asarray(weights / weights.sum(axis=0))


_TOLERANCE = 1e-9
_STEPS = 80
_FLAT = 1e-300  # a curvature of 0 asks for the largest step


def local_log_a(
    shards: Shards, start: float, limit: float = LOG_A_LIMIT, steps: int | None = None
) -> Floats:
    """Each client's best log(1/T), bounded to [-limit, limit], shape (clients,).

    A shard without errors has its optimum at T = 0: the score has one sign all the way and the
    bound is returned. Otherwise Newton inside a bracket of the monotone score, for all clients
    together; a client is frozen at *its own* convergence, so that its answer does not depend on
    who shares the block. A client without rows stays at `start`.

    Parameters
    ----------
    start
        log(1/T) to begin from
    limit
        bound of `|log(1/T)|`, by default log 20
    steps
        most steps of Newton, as an optimiser that gives up would take them: a shard without
        errors then ends on its way to the bound; None = to the optimum
    """
    shifted_logits(shards), label_logits(shards)  # computed once, carried along by `take`
    log_a = np.full(shards.clients, start)
    active = np.flatnonzero(shards.rows > 0)
    for bound, sign in ((limit, -1.0), (-limit, 1.0)) if steps is None else ():
        g, _ = _derivatives(shards.take(active), np.full(len(active), bound))
        at_bound = sign * g >= 0
        log_a[active[at_bound]] = bound
        active = active[~at_bound]
    part = shards.take(active)
    now = np.full(len(active), min(max(start, -limit), limit))
    low, high = np.full(len(active), -limit), np.full(len(active), limit)
    for _ in range(_STEPS if steps is None else steps):
        if not len(active):
            break
        g, h = _derivatives(part, now)
        low, high = np.where(g < 0, now, low), np.where(g < 0, high, now)
        with np.errstate(over="ignore"):  # an infinite step is the longest there is
            step = -g / np.maximum(h, _FLAT)
        moved = now + np.clip(step, -1.0, 1.0)
        moved = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
        log_a[active] = moved
        going = np.flatnonzero(np.abs(moved - now) > _TOLERANCE)
        if len(going) < len(active):
            active, part = active[going], part.take(going)
            low, high = low[going], high[going]
        now = moved[going]
    return log_a


def _derivatives(part: Shards, log_a: Floats) -> tuple[Floats, Floats]:
    """First and Gauss-Newton second derivative of each client's loss at its own log(1/T)."""
    a = np.exp(log_a)[part.owner]
    mean, var = tempered_moments(shifted_logits(part), a[:, None])
    return part.sum_rows(a * (mean - label_logits(part))), part.sum_rows(a * a * var)


def temperature_update(shards: Shards, query: TemperatureUpdate) -> Floats:
    """u_k = w - w_k, how far the client's own optimum is from the global parameter w.

    (Maddock et al., Algorithm 2 and B.2.) A client without rows sends zeros.

    Returns (clients, 1) or, with `count`, (clients, 2).
    """
    w, inverse = query.w, query.average == "inverse"
    limit = LOG_A_LIMIT if query.limit == LIMIT else float(np.log(query.limit))
    log_a = local_log_a(shards, np.log(w) if inverse else -np.log(w), limit, query.steps)
    has_rows = shards.rows > 0
    update = np.where(has_rows, w - np.exp(log_a if inverse else -log_a), 0.0)
    if not query.count:
        return update[:, None]
    return np.stack([update, has_rows.astype(np.float64)], axis=1)


def site_effects(shards: Shards, query: SiteEffects) -> Floats:
    """Moments of each client's own recalibration under the identity prior, (clients, 2 d)."""
    prior = identity_prior(shards.classes)
    best, cov, *_ = posterior(shards, [prior] * shards.clients)
    square = np.diag(prior.cov)
    second = np.diagonal(cov, axis1=1, axis2=2) + best**2
    moments = best / np.sqrt(square), second / square - 1.0
    return np.where(shards.rows[:, None] > 0, np.concatenate(moments, axis=1), 0.0)


def accuracy_gap(shards: Shards, query: AccuracyGap) -> Floats:
    """sum_i (correct_i - conf_i(T)): its root makes mean confidence equal accuracy (Acc-T).

    It rises with T. A row adds less than 1 in absolute value.

    Returns (clients, temperatures) in rows.
    """
    return _each(shards, query, lambda t: shards.sum_rows(_gap(shards, t))[:, None])


def clipped_nll(shards: Shards, query: ClippedNLL) -> Floats:
    """sum_i min(-log p_i(y_i; T), clip), in nats (NLL-T).

    Returns (clients, temperatures) in nats.
    """
    clip = query.nll_clip

    def total(t: float) -> Floats:
        z, of_label = shifted_logits(shards) / t, label_logits(shards) / t
        return shards.sum_rows(np.minimum(np.log(row_sum(np.exp(z))) - of_label, clip))[:, None]

    return _each(shards, query, total)


def calibration_gaps(shards: Shards, query: CalibrationGaps) -> Floats:
    """sum_{i in b} (correct_i - conf_i(T)) of each bin b of the confidence at T (ECE-T).

    A row is in one bin, so it adds less than 1 in L1 norm.

    Returns (clients, temperatures * bins) in rows, the bins of one temperature together.
    """
    bins = query.bins

    def gaps(t: float) -> Floats:
        confidence = top_confidence(shifted_logits(shards) / t)
        cells = bin_index(confidence, bins)
        return shards.sum_rows(correct(shards) - confidence, cells, bins)

    return _each(shards, query, gaps)


def mean_gaps(shards: Shards, query: MeanGaps) -> Floats:
    """sum_i (correct_i - a) of each candidate a, times the gain.

    Returns (clients, points) in rows.
    """
    each = shards.weights(query.subject_rows)
    total, rows = shards.sum_rows(correct(shards) * each), shards.sum_rows(each)
    return np.asarray((total[:, None] - rows[:, None] * query.candidates) * query.gain)


def _each(shards: Shards, query: TemperatureQuery, one: Callable[[float], Floats]) -> Floats:
    """Return the answers to each temperature, (clients, numbers) each, side by side."""
    if not len(shards.labels):
        return np.zeros((shards.clients, sum(query.lengths())))
    return np.concatenate([one(t) for t in query.each], axis=1)


def _gap(shards: Shards, temperature: float) -> Floats:
    return np.asarray(correct(shards) - top_confidence(shifted_logits(shards) / temperature))
