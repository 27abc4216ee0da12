"""Sums over a client's rows of the temperature objective's derivatives."""

from __future__ import annotations

import math

import numpy as np

from fedcal.calibrators.top_label_logistic import derivatives, top_log_odds
from fedcal.core.numerics import label_entries, log_grid, shifted, tempered_mean, tempered_moments
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.queries import TemperatureNewton, TemperatureScores, TopLabelNewton


def shifted_logits(shards: Shards) -> Floats:
    """The rows' logits minus their maximum, computed once a run, (n, c)."""
    return shards.derived("shifted", lambda s: shifted(s.logits))


def label_logits(shards: Shards) -> Floats:
    """The shifted logit of each row's label, computed once a run, (n,)."""
    return shards.derived("label", lambda s: label_entries(shifted_logits(s), s.labels))


def correct(shards: Shards) -> Floats:
    """1 where the first largest logit is the label's, computed once a run, (n,)."""
    return shards.derived(
        "correct", lambda s: (s.logits.argmax(axis=1) == s.labels).astype(np.float64)
    )


def temperature_newton(shards: Shards, query: TemperatureNewton) -> Floats:
    """Gradient and curvature of the negative log-likelihood in log a, a = 1/T.

    G = sum_i a (E_p[z_i] - z_i[y_i]) and H = sum_i a^2 Var_p[z_i], p = softmax(a z).

    Returns
    -------
    Floats
        (clients, 2): G, H in nats
    """
    a = math.exp(query.log_a)
    mean, var = tempered_moments(shifted_logits(shards), a)
    g = a * (mean - label_logits(shards))
    return np.stack([shards.sum_rows(g), shards.sum_rows(a * a * var)], axis=1)


def temperature_scores(shards: Shards, query: TemperatureScores) -> Floats:
    """S_k(T) = sum_i a (E_p[z_i] - z_i[y_i]), a = 1/T, on a public grid of temperatures.

    The root in T of the federation's sum is the pooled optimum: the score is a times the
    derivative of the negative log-likelihood in a, which is monotone.

    Returns
    -------
    Floats
        (clients, points) in nats
    """
    z, of_label = shifted_logits(shards), label_logits(shards)
    out = np.empty((shards.clients, query.points))
    log_t = log_grid(query.low, query.high, query.points)
    for t, a in enumerate(np.exp(-log_t)):
        out[:, t] = shards.sum_rows(a * (tempered_mean(z, a) - of_label))
    return out


def top_label_newton(shards: Shards, query: TopLabelNewton) -> Floats:
    """Derivatives of two losses: the model's at T, and that of its predictions being right.

    Returns
    -------
    Floats
        (clients, 7): as `temperature_newton`, then as `top_label_logistic.derivatives`
    """
    a = math.exp(query.log_a)
    s = top_log_odds(shifted_logits(shards), a)
    of_rows = derivatives(query.offset, query.slope, s, correct(shards))
    own = [shards.sum_rows(of_rows[:, j]) for j in range(5)]
    of_temperature = temperature_newton(shards, TemperatureNewton(query.log_a, query.classes))
    return np.column_stack([of_temperature, *own])
