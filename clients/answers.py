"""Query kind -> statistic, and the one function that every engine calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clients.histograms import class_counts, class_histograms, pooled_histograms
from clients.mlp_training import mlp_update
from clients.objectives import temperature_newton, temperature_scores
from clients.parametric import scaling_newton, scaling_update
from clients.scalers import temperature_update
from fedcal.checks import one_of
from fedcal.privacy.bounding import encode_bounded
from fedcal.query import Query
from fedcal.shards import Shards
from fedcal.types import Floats, Words

Statistic = Callable[[Shards, Mapping[str, Any]], Floats]

STATISTICS: dict[str, Statistic] = {
    "class_histograms": class_histograms,
    "class_counts": class_counts,
    "scaling_newton": scaling_newton,
    "scaling_update": scaling_update,
    "pooled_histograms": pooled_histograms,
    "mlp_update": mlp_update,
    "temperature_newton": temperature_newton,
    "temperature_scores": temperature_scores,
    "temperature_update": temperature_update,
}


def answer(shards: Shards, query: Query) -> Words:
    """Each client's contribution: computed, clipped to the query's bound, encoded.

    Returns
    -------
    (clients, length) uint64

    Raises
    ------
    InputError
        If the kind is unknown, or a contribution is not finite or leaves the ring.
    """
    statistic = STATISTICS[one_of("query", query.kind, STATISTICS)]
    return encode_bounded(statistic(shards, query.params), query.bound, query.ring)
