"""Gradients of a network that is being trained, summed over each client's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import ContributionRefused, InputError
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers, Words
from fedcal.queries import Gradients, LocalUpdate
from fedcal.secure_aggregation import Ring
from fedcal.training.network import Clipping, text_of
from fedcal.units.bounding import Bound


def gradients(shards: Shards, query: Gradients) -> Floats:
    """Sum over each client's rows of their bounded gradients, (clients, size), in nats."""
    grid = query.grid
    return np.asarray(_steps(shards, query, query.rows, grid) * grid)


def gradient_words(shards: Shards, query: Gradients, bound: Bound, ring: Ring) -> Words | None:
    """The same in steps of the ring, where each row is bounded: all rows of a client at once.

    Formal guarantee: each row adds whole numbers of norm `min(bound.norms)` at most
    (`Network.steps`), and the sum is clamped to what the ring grants a client, which is
    1-Lipschitz. So a row more or less moves a client's answer by no more than the bound.

    Returns
    -------
    Words
        (clients, size) uint64

    Raises
    ------
    ContributionRefused
        If nothing is bounded (no privacy) and a sum does not fit the ring.
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


def read_inputs(shards: Shards, query: Gradients | LocalUpdate) -> NDArray[Any]:
    """The rows' inputs as the network reads them, computed once of each row.

    Rows without inputs of their own have the logits of a model that is there already.
    """
    inputs = shards.logits if shards.inputs is None else shards.inputs
    if shards.input_shape != query.reads or shards.classes != query.classes:
        raise InputError(
            f"the network reads inputs of shape {query.shape} and has {query.classes} classes; "
            f"the rows here have {text_of(shards.input_shape)} and {shards.classes}"
        )
    return shards.derived(
        ("inputs of", query.network), lambda s: query.architecture.prepared(np.asarray(inputs))
    )


def _steps(shards: Shards, query: Gradients, clipping: Clipping, grid: float) -> Integers:
    inputs = read_inputs(shards, query)
    return query.architecture.steps(
        query.w, inputs, shards.labels, shards.offsets, query.classes, clipping, grid
    )
