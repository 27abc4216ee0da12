"""FedCP-QQ: a quantile of the clients' quantiles, in one round and without noise.

Humbert, Le Bars, Bellet & Arlot, "One-Shot Federated Conformal Prediction" (ICML 2023): each of K
clients with n rows sends the l-th smallest of its scores, and the k-th smallest of these is the
threshold. With distinct scores the share of rows below a client's number is Beta(l, n - l + 1), so
the coverage is the k-th smallest of K such, whatever the law of the scores; ties only raise it.
(l, k) are those with the least mean coverage that is at least 1 - alpha.

The paper writes this mean as a sum over hypergeometric probabilities; here it is the integral of
P(Bin(K, P(Bin(n, u) >= l)) < k) over u, which is the same (a test compares it with draws). It was
not run beside the authors' program (`pierreHmbt/FedCP-QQ`); their locally private variant is left
out. What clients send are scores of rows: nothing is private.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import betainc

from fedcal.core.errors import InputError
from fedcal.core.types import Floats

_NODES = 2048


def mean_coverage(clients: int, rows: int) -> Floats:
    """Return mean coverage of each (l, k), distinct scores: (rows, clients), [l - 1, k - 1]."""
    x, weights = np.polynomial.legendre.leggauss(_NODES)
    u, weights = (x + 1) / 2, weights / 2
    ranks = np.arange(1, rows + 1)[:, None]
    below = betainc(ranks, rows - ranks + 1, u)  # P(l-th smallest <= u), (rows, nodes)
    # P(k-th smallest of K <= u) is the same function again
    found = [1 - betainc(k, clients - k + 1, below) @ weights for k in range(1, clients + 1)]
    return np.stack(found, axis=1)


@cache
def best_ranks(clients: int, rows: int, alpha: float) -> tuple[int, int, float]:
    """(l, k, their mean coverage).

    Raises
    ------
    InputError
        No pair covers so much, because there are too few rows.
    """
    found = mean_coverage(clients, rows)
    if found.max() < 1 - alpha:
        raise InputError(f"{clients} clients of {rows} rows are too few for alpha = {alpha:g}")
    found = np.where(found >= 1 - alpha, found, 2.0)
    row, client = np.unravel_index(np.argmin(found), found.shape)
    return int(row) + 1, int(client) + 1, float(found[row, client])


def thresholds(scores: Floats, clients: int, alpha: float) -> Floats:
    """Return a threshold for each set of rows, dealt evenly in their order, (k, n) -> (k,).

    Raises
    ------
    InputError
        Rows cannot be dealt evenly, or are too few.
    """
    many, n = scores.shape
    if n % clients:
        raise InputError(f"{n} rows cannot be dealt evenly to {clients} clients")
    rank, of_clients, _ = best_ranks(clients, n // clients, alpha)
    own = scores.reshape(many, clients, -1)
    sent = np.partition(own, rank - 1, axis=2)[:, :, rank - 1]
    return np.asarray(np.partition(sent, of_clients - 1, axis=1)[:, of_clients - 1])
