"""Exact metrics of each client's rows: for simulations, never a private release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcal.core.types import Floats, Integers

MOST_CLIENTS = 1000
"""Maximum number of clients with their own metrics: the first ones with rows."""


def by_client(
    owner: Integers,
    names: tuple[str, ...],
    views: Mapping[str, tuple[Floats, Floats]],
    weights: Floats | None = None,
) -> dict[str, Any]:
    """Return the accuracy and calibration in the large of each client that has rows.

    Parameters
    ----------
    owner
        (n,) client of each row, in [0, K)
    names
        names of the K clients
    views
        key -> (n,) whether the prediction is right, and (n,) score minus outcome
    weights
        (n,) what each row counts; None = 1

    Returns
    -------
    dict
        name -> {"rows": n, key: {"accuracy": a, "gap": g}, ...}
    """
    rows = np.bincount(owner, minlength=len(names))
    there = np.flatnonzero(rows)[:MOST_CLIENTS]
    each = np.ones(len(owner)) if weights is None else weights
    total = np.bincount(owner, each, len(names))
    record: dict[str, Any] = {names[k]: {"rows": int(rows[k])} for k in there}
    for key, (right, gap) in views.items():
        accuracy, mean = (
            np.bincount(owner, value * each, len(names))[there] / total[there]
            for value in (right, gap)
        )
        for k, a, g in zip(there, accuracy, mean, strict=True):
            record[names[k]][key] = {"accuracy": float(a), "gap": float(g)}
    return record
