"""The owner of each row: label-skewed, uniform and natural.

Each function returns the owner of every row, shape (n,) int64 in [0, clients). Clients may end
up empty; that is legal everywhere.
"""

from __future__ import annotations

import numpy as np

from fedcal.checks import positive, whole
from fedcal.errors import InputError
from fedcal.types import Integers


def iid(labels: Integers, clients: int, rng: np.random.Generator) -> Integers:
    """Uniform partition into shards whose sizes differ by at most one row."""
    whole("clients", clients, 1)
    owner = np.empty(len(labels), np.int64)
    owner[rng.permutation(len(labels))] = np.arange(len(labels)) % clients
    return owner


def dirichlet(labels: Integers, clients: int, beta: float, rng: np.random.Generator) -> Integers:
    """Dirichlet label skew (Yurochkin et al. 2019; Maddock et al., A.2).

    For each class draw p ~ Dirichlet(beta, ..., beta) over clients and split that class's rows
    by p. Small beta: each class sits with few clients. beta = 1 is *not* uniform; use `iid`.
    """
    whole("clients", clients, 1)
    positive("beta", beta)
    owner = np.empty(len(labels), np.int64)
    for j in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == j))
        share = rng.dirichlet(np.full(clients, float(beta)))
        if not np.isfinite(share).all():
            raise InputError(f"beta = {beta!r} is too small to draw from for {clients} clients")
        cut = (np.cumsum(share)[:-1] * len(rows)).astype(np.int64)
        owner[rows] = np.searchsorted(cut, np.arange(len(rows)), side="right")
    return owner


def natural(client: Integers) -> Integers:
    """The clients that the data name themselves, (n,) with values 0..K-1."""
    client = np.asarray(client)
    if client.ndim != 1 or not np.issubdtype(client.dtype, np.integer):
        raise InputError("natural clients must be one integer per row")
    return client.astype(np.int64)
