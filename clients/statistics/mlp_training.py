"""FedCal's local training: a few epochs of SGD on the client's own rows, all clients at once."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.order_preserving_mlp import (
    OrderPreservingMLP,
    batch_shape,
    batches,
    sgd_step,
)
from fedcal.calibrators.parametric import rows_of
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.queries import MLPUpdate

_TOGETHER = 8  # clients trained at once: their parameters and batches stay in the cache


def mlp_update(shards: Shards, query: MLPUpdate) -> Floats:
    """u_k = w - w_k, where w_k is what SGD on the client's rows makes of the global w.

    (Maddock et al., Algorithm 2 and B.2; Peng et al. 2024.) A client without rows sends zeros.
    The order of a client's rows is public and depends on `seed` and on how many rows the client
    has, so that its answer does not depend on who else is asked.

    Returns
    -------
    Floats
        (clients, size) or, with `count`, (clients, size + 1)
    """
    w, batch = query.w, query.batch
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
