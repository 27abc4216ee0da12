"""A network that is being trained: sums of bounded gradients, and clients' own SGD (DP-FedAvg)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import ContributionRefused, InputError
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers, Words
from fedcal.queries import Gradients, LocalUpdate, WeightedUpdate
from fedcal.queries.training import FARTHEST
from fedcal.secure_aggregation import Ring
from fedcal.training.networks import Clipping, text_of
from fedcal.units.bounding import Bound


def gradients(shards: Shards, query: Gradients) -> Floats:
    """Sum over each client's rows of their bounded gradients, (clients, size), in nats."""
    grid = query.grid
    return np.asarray(_steps(shards, query, query.rows, grid) * grid)


def gradient_words(shards: Shards, query: Gradients, bound: Bound, ring: Ring) -> Words | None:
    """Return the gradients in steps of the ring if rows are bounded, all rows of a client at once.

    Formal guarantee: each row adds whole numbers of norm `min(bound.norms)` at most
    (`Network.steps`), and the sum is clamped to what the ring grants a client, which is
    1-Lipschitz. So a row more or less moves a client's answer by no more than the bound.

    Raises ContributionRefused if nothing is bounded (no privacy) and a sum does not fit the ring.

    Returns
    -------
    Words
        (clients, size) uint64
    """
    if bound.order != 2:
        return None  # rows are bounded in L2 here
    clipping = query.rows
    if bound.finite:  # the norm is the plan's
        rule = "row" if clipping.rule == "none" else clipping.rule
        clipping = Clipping(min(bound.norms), rule, query.reach)
    steps = _steps(shards, query, clipping, ring.grid)
    if not bound.finite and (np.abs(steps) > ring.limit).any():
        raise ContributionRefused(
            f"a sum of gradients does not fit the ring of {ring.clients} clients: take fewer rows "
            "or features of a smaller norm"
        )
    return np.clip(steps, -ring.limit, ring.limit).view(np.uint64)


def _inputs(shards: Shards, query: Gradients | LocalUpdate | WeightedUpdate) -> NDArray[Any]:
    """Return the rows' inputs, of the shape that the network reads.

    Rows without inputs of their own have the logits of a model that is there already.
    """
    inputs = shards.logits if shards.inputs is None else shards.inputs
    if shards.input_shape != query.reads or shards.classes != query.classes:
        raise InputError(
            f"the network reads inputs of shape {query.shape} and has {query.classes} classes; "
            f"the rows here have {text_of(shards.input_shape)} and {shards.classes}"
        )
    return np.asarray(inputs)


def _steps(shards: Shards, query: Gradients, clipping: Clipping, grid: float) -> Integers:
    shards = shards.ordered
    inputs = _inputs(shards, query)
    return query.architecture.steps(
        query.w, inputs, shards.labels, shards.offsets, query.classes, clipping, grid
    )


def local_updates(shards: Shards, query: LocalUpdate) -> Floats:
    """w_k - w in units of the clip, of norm 1 at most, where w_k is what SGD makes of w.

    (McMahan et al. 2018, Algorithm 1; the count: Andrew et al. 2021.) The order of a client's rows
    is public and depends on `seed` and on how many rows the client has, so that its answer does not
    depend on who else is asked.

    Returns (clients, size) or, with `count`, (clients, size + 1); zeros without rows, and where SGD
    diverges.
    """
    shards, size = shards.ordered, len(query.w)
    inputs = _inputs(shards, query)
    out = np.zeros((shards.clients, sum(query.lengths())))
    for k, n in _with_rows(shards):
        rng = stream(query.seed, Purpose.SAMPLING, 0, f"{n} rows")
        update, _ = _trained(shards, inputs, query, k, rng)
        norm = float(np.linalg.norm(update)) / query.clip
        if np.isfinite(norm):
            out[k, :size] = update / (query.clip * max(norm, 1.0))
        if query.count:
            out[k, size] = 0.5 if norm <= 1.0 else -0.5  # no number is more than the clip, too
    return out


def weighted_updates(
    shards: Shards, query: WeightedUpdate, sites: Integers | None = None
) -> Floats:
    """N (w_k - w) of each client's n rows, n times its mean loss, n, and n where SGD diverged.

    (McMahan et al. 2017, FederatedAveraging.)

    Parameters
    ----------
    sites
        (clients,) the number of each client's site, which the order of its rows follows from;
        None = 0 of all

    Returns
    -------
    Floats
        (clients, size + 3); zeros without rows
    """
    shards, size = shards.ordered, len(query.w)
    inputs = _inputs(shards, query)
    out = np.zeros((shards.clients, size + 3))
    for k, n in _with_rows(shards):
        site = 0 if sites is None else int(sites[k])
        rng = stream(query.seed, Purpose.SAMPLING, query.round, f"batches of {site}")
        update, loss = _trained(shards, inputs, query, k, rng)
        if np.abs(update).max() <= FARTHEST and abs(loss) <= FARTHEST:  # and both are finite
            out[k, :size] = n * update
            out[k, size:] = n * loss, n, 0
        else:
            out[k, size:] = 0, n, n
    return out


def _with_rows(shards: Shards) -> list[tuple[int, int]]:
    """Each client that has rows, and how many."""
    return [(k, n) for k, n in enumerate(shards.rows.tolist()) if n]


def _trained(
    shards: Shards,
    inputs: Any,
    query: LocalUpdate | WeightedUpdate,
    k: int,
    rng: np.random.Generator,
) -> tuple[Floats, float]:
    """Run SGD on the rows of client k; return what it adds to w, and the mean loss on the way."""
    rows = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
    return query.architecture.local_update(
        query.w, inputs[rows], shards.labels[rows], query.classes, query.sgd, rng
    )
