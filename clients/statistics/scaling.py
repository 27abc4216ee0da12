"""Scaling calibrators with a vector of parameters: derivatives, local fits, FedCal's local SGD."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators import TemperatureScaling
from fedcal.calibrators.minimisers import residuals
from fedcal.calibrators.order_preserving import (
    OrderPreservingMLP,
    batch_shape,
    batches,
    sgd_step,
)
from fedcal.calibrators.parametric import LocalLosses, ParametricScaling, local_fits, rows_of
from fedcal.clients.statistics.temperature import label_logits, shifted_logits
from fedcal.core.errors import InputError
from fedcal.core.numerics import sigmoid, softplus, tempered_mean
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.queries import MLPUpdate, ScalingGradients, ScalingNewton, ScalingUpdate
from fedcal.queries.scaling import form_of
from fedcal.units.bounding import Bound, bounded


def scaling_update(shards: Shards, query: ScalingUpdate) -> Floats:
    """u_k = w - w_k, how far the client's own optimum is from the global parameters w.

    (Maddock et al., Algorithm 2 and B.2.) A client without rows sends zeros. What is sent is
    one optimum for each client; the plan's bound clips it afterwards.

    Returns (clients, size) or, with `count`, (clients, size + 1).
    """
    form, w, shards = _form(shards, query), query.w, shards.ordered
    update = w - local_fits(form, shards, w, proximal=query.proximal, steps=query.steps)
    if not query.count:
        return update
    return np.column_stack([update, shards.rows > 0])


def scaling_newton(shards: Shards, query: ScalingNewton) -> Floats:
    """Gradient and Gauss-Newton curvature, at w, of the client's summed negative log-likelihood.

    Ours: sums, not optima, so that the federation's sum is that of the pooled rows, however they
    are dealt.

    Returns (clients, size + size (size + 1) / 2) in nats.
    """
    form, w, shards = _form(shards, query), query.w, shards.ordered
    out = np.zeros((shards.clients, sum(query.lengths())))
    rows_of(form, shards)  # computed once, carried along by `take`
    ids = np.flatnonzero(shards.rows)
    part = shards.take(ids)
    losses = LocalLosses(form, *rows_of(form, part), part.rows, w)
    at = np.tile(w, (len(ids), 1))
    out[ids, : len(w)] = losses.value(at)[1]
    out[ids, len(w) :] = losses.triangle(at)
    return out


def scaling_gradients(shards: Shards, query: ScalingGradients) -> Floats:
    """Gradient at w of the negative log-likelihood, summed over each client's rows.

    With `clip` each row's gradient is clipped to that norm before (DP-SGD, Abadi et al. 2016).

    Returns (clients, size) in nats.
    """
    of_rows = _gradients(shards, query)
    size = of_rows.shape[1]
    if query.clip is not None:
        of_rows = bounded(of_rows, Bound((size,), (query.clip,)))
    return np.stack([shards.sum_rows(of_rows[:, j]) for j in range(size)], axis=1)


def _gradients(shards: Shards, query: ScalingGradients) -> Floats:
    """Return the gradient of each row, (n, size)."""
    if query.form == TemperatureScaling.kind:
        a, slope = softplus(query.w)[0], sigmoid(query.w)[0]
        mean = tempered_mean(shifted_logits(shards), a)
        return np.asarray(slope * (mean - label_logits(shards)))[:, None]
    form = _form(shards, query)
    x, columns = rows_of(form, shards)
    residual = residuals(form.scores(x, query.w), columns)[1]
    return form.pull_back(x, query.w, residual)


def _form(
    shards: Shards, query: ScalingUpdate | ScalingNewton | ScalingGradients
) -> type[ParametricScaling]:
    """Return the form of scaling; InputError if its parameters do not fit such rows."""
    form = form_of(query.form)
    if query.w.shape != (form.size(shards.classes),):
        raise InputError(
            f"{form.kind} scaling of {shards.classes} classes has {form.size(shards.classes)} "
            f"parameters, the query has {query.w.size}"
        )
    return form


_TOGETHER = 8  # clients trained at once: their parameters and batches stay in the cache


def mlp_update(shards: Shards, query: MLPUpdate) -> Floats:
    """Return u_k = w - w_k, where w_k results from SGD on the client's rows from w.

    (Maddock et al., Algorithm 2 and B.2; Peng et al. 2024.) A client without rows sends zeros.
    The order of a client's rows is public and depends on `seed` and on how many rows the client
    has, so that its answer does not depend on who else is asked.

    Returns (clients, size) or, with `count`, (clients, size + 1).
    """
    w, batch, shards = query.w, query.batch, shards.ordered
    out = np.zeros((shards.clients, len(w) + query.count))
    y, rank = rows_of(OrderPreservingMLP, shards)
    orders = {
        n: batches(n, query.epochs, batch, query.seed) for n in np.unique(shards.rows).tolist() if n
    }
    for ids in _groups(shards.rows, batch):
        trained = np.repeat(w[None], len(ids), axis=0)
        plans = [orders[n] for n in shards.rows[ids].tolist()]
        first = shards.offsets[ids, None]
        for t in range(len(plans[0][0])):
            going = [plan for plan in plans if t < len(plan[0])]
            k = len(going)  # those with more steps stand first
            rows = np.stack([order[t] for order, _ in going]) + first[:k]
            weights = np.stack([weight[t] for _, weight in going])
            sgd_step(trained[:k], y[rows], rank[rows], weights, query.lr)
        out[ids, : len(w)] = w - trained
    if query.count:
        out[:, -1] = shards.rows > 0
    return out


def _groups(rows: Integers, batch: int) -> list[Integers]:
    """Clients with rows, a few at a time: of one batch width, those with more steps first."""
    some = np.flatnonzero(rows)
    shapes = [batch_shape(n, batch) for n in rows[some].tolist()]
    widths = np.array([width for _, _, width in shapes], np.int64)
    steps = np.array([per_epoch for per_epoch, _, _ in shapes], np.int64)
    groups = []
    for width in np.unique(widths).tolist():
        alike = np.flatnonzero(widths == width)
        ids = some[alike[np.argsort(-steps[alike], kind="stable")]]
        groups += [ids[i : i + _TOGETHER] for i in range(0, len(ids), _TOGETHER)]
    return groups
