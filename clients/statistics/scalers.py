"""Local optima of scaling calibrators, solved for all clients at once."""

from __future__ import annotations

import numpy as np

from fedcal.clients.statistics.temperature import label_logits, shifted_logits
from fedcal.core.numerics import LOG_A_LIMIT, tempered_moments
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.queries import TemperatureUpdate
from fedcal.queries.temperature import LIMIT

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

    Returns
    -------
    Floats
        (clients, 1) or, with `count`, (clients, 2)
    """
    w, inverse = query.w, query.average == "inverse"
    limit = LOG_A_LIMIT if query.limit == LIMIT else float(np.log(query.limit))
    log_a = local_log_a(shards, np.log(w) if inverse else -np.log(w), limit, query.steps)
    has_rows = shards.rows > 0
    update = np.where(has_rows, w - np.exp(log_a if inverse else -log_a), 0.0)
    if not query.count:
        return update[:, None]
    return np.stack([update, has_rows.astype(np.float64)], axis=1)
