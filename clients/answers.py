"""Query kind -> statistic, and the one function that every engine calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedcal.bounding import Per, encode_bounded
from fedcal.checks import one_of
from fedcal.clients.histograms import class_counts, class_histograms, pooled_histograms
from fedcal.clients.mlp_training import mlp_update
from fedcal.clients.objectives import temperature_newton, temperature_scores
from fedcal.clients.outcomes import bin_outcomes, outcome_cell
from fedcal.clients.parametric import scaling_newton, scaling_update
from fedcal.clients.scalers import temperature_update
from fedcal.clients.temperature_queries import accuracy_gap, calibration_gaps, clipped_nll
from fedcal.mechanisms import Noise, Source, samplers
from fedcal.query import Query
from fedcal.secure_aggregation import ClientSums
from fedcal.shards import Shards
from fedcal.streams import Purpose, stream
from fedcal.types import Floats, Integers, Words

ROW_NUMBERS = 1 << 18
"""Numbers that are clipped at once where the bound is per row or subject."""

Statistic = Callable[[Shards, Mapping[str, Any]], Floats]

STATISTICS: dict[str, Statistic] = {
    "accuracy_gap": accuracy_gap,
    "bin_outcomes": bin_outcomes,
    "calibration_gaps": calibration_gaps,
    "class_histograms": class_histograms,
    "class_counts": class_counts,
    "clipped_nll": clipped_nll,
    "scaling_newton": scaling_newton,
    "scaling_update": scaling_update,
    "pooled_histograms": pooled_histograms,
    "mlp_update": mlp_update,
    "outcome_cell": outcome_cell,
    "temperature_newton": temperature_newton,
    "temperature_scores": temperature_scores,
    "temperature_update": temperature_update,
}


def answer(shards: Shards, query: Query) -> Words:
    """Each client's contribution: computed, clipped to the query's bound, encoded.

    Where the bound is per row (subject), what each row (all rows of a subject) adds is clipped and
    encoded, and the client adds these up as integers, saturated (`ClientSums`). No row that the
    data readers accept makes a bounded contribution raise: what overflows is clipped as any other
    number.

    Returns
    -------
    (clients, length) uint64

    Raises
    ------
    InputError
        If the kind is unknown, an unbounded contribution (no privacy) is not finite or leaves the
        ring, or the bound is per subject and the rows do not say whom they are about.
    """
    statistic = STATISTICS[one_of("query", query.kind, STATISTICS)]
    bound, ring = query.bound, query.ring
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if bound.per == "client":
            return encode_bounded(statistic(shards, query.params), bound, ring)
        sums = ClientSums(shards.clients, bound.length, ring)
        parts, owner = _parts(shards, bound.per)
        step = max(1, ROW_NUMBERS // bound.length)
        for a in range(0, parts.clients, step):
            part = parts.block(a, min(a + step, parts.clients))
            words = encode_bounded(statistic(part, query.params), bound, ring)
            sums.add(words, owner[a : a + step])
    return sums.saturated()


def _parts(shards: Shards, per: Per) -> tuple[Shards, Integers]:
    """What is clipped by itself, each a client of its own, and (parts,) the client of each."""
    return (shards.each_row(), shards.owner) if per == "row" else shards.each_subject()


def contribute(shards: Shards, query: Query, sites: Integers, *, simulated: bool = True) -> Words:
    """What each client sends, before masks: its answer, its own coin and its own noise.

    Parameters
    ----------
    sites : (clients,) the number of each client's site, which keys its randomness
    simulated : draw coins and noise from the query's seed; False = from the operating system,
        whatever the query says

    Returns
    -------
    (clients, length) uint64

    Raises
    ------
    InputError
        As `answer`.
    """
    words = answer(shards, query)
    if query.noise is None and query.rate >= 1:
        return words
    asked = query.key
    for i, site in enumerate(sites.tolist()):
        if query.rate < 1 and not _heads(query, site, simulated):
            words[i] = 0  # its noise goes out all the same: nobody sees the coin
        if query.noise is not None:
            words[i] = _noised(words[i], query, query.noise, f"site {site} {asked}", simulated)
    return words


def _noised(words: Words, query: Query, noise: Noise, what: str, simulated: bool) -> Words:
    source = _source(query, Purpose.SHARE, what, simulated)
    return noise.law.client(words, query.ring, noise, source)


def _heads(query: Query, site: int, simulated: bool) -> bool:
    """The client's secret coin: whether its rows take part in the round."""
    source = _source(query, Purpose.COIN, f"site {site}", simulated)
    if source is not None:
        return bool(source.random() < query.rate)
    return bool(samplers.bernoulli(query.rate, 1, samplers.system_words)[0])


def _source(query: Query, purpose: Purpose, what: str, simulated: bool) -> Source:
    if simulated and query.seed is not None:
        return stream(query.seed, purpose, query.round, what)
    return None
