"""What each client's own SGD makes of the weights of a network (DP-FedAvg)."""

from __future__ import annotations

import numpy as np

from fedcal.clients.statistics.training import read_inputs
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.queries import LocalUpdate


def local_updates(shards: Shards, query: LocalUpdate) -> Floats:
    """w_k - w in units of the clip, of norm 1 at most, where w_k is what SGD makes of w.

    (McMahan et al. 2018, Algorithm 1; the count: Andrew et al. 2021.) The order of a client's rows
    is public and depends on `seed` and on how many rows the client has, so that its answer does not
    depend on who else is asked.

    Returns
    -------
    Floats
        (clients, size) or, with `count`, (clients, size + 1); zeros without rows, and where SGD
        diverges
    """
    inputs, size = read_inputs(shards, query), len(query.w)
    out = np.zeros((shards.clients, sum(query.lengths())))
    for k in np.flatnonzero(shards.rows).tolist():
        rows = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
        rng = stream(query.seed, Purpose.SAMPLING, 0, f"{rows.stop - rows.start} rows")
        update = query.architecture.local_update(
            query.w, inputs[rows], shards.labels[rows], query.classes, query.sgd, rng
        )
        norm = float(np.linalg.norm(update)) / query.clip
        if np.isfinite(norm):
            out[k, :size] = update / (query.clip * max(norm, 1.0))
        if query.count:
            out[k, size] = 0.5 if norm <= 1.0 else -0.5  # no number is more than the clip, too
    return out
