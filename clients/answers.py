"""Query kind -> statistic, and the one function that every engine calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedcal.clients.statistics.conformal import row_words as rows_of_sets
from fedcal.clients.statistics.conformal import set_counts, set_gaps
from fedcal.clients.statistics.evaluation import row_words, score_cell, score_counts
from fedcal.clients.statistics.histograms import (
    bin_outcomes,
    class_counts,
    class_histograms,
    outcome_cell,
    pooled_histograms,
)
from fedcal.clients.statistics.scaling import (
    mlp_update,
    scaling_gradients,
    scaling_newton,
    scaling_update,
)
from fedcal.clients.statistics.temperature import (
    accuracy_gap,
    calibration_gaps,
    clipped_nll,
    mean_gaps,
    site_effects,
    temperature_newton,
    temperature_scores,
    temperature_update,
)
from fedcal.clients.statistics.training import (
    gradient_words,
    gradients,
    local_updates,
    weighted_updates,
)
from fedcal.core.checks import one_of
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers, Words
from fedcal.evaluation.counting import cells_of
from fedcal.mechanisms import Source, samplers
from fedcal.queries import QUERIES, Query, ScoreCounts
from fedcal.queries.request import Request
from fedcal.secure_aggregation import ClientSums, Ring
from fedcal.units.bounding import Bound, Per, encode_bounded

ROW_NUMBERS = 1 << 18
"""Numbers that are clipped at once where the bound is per row or subject."""

Statistic = Callable[[Shards, Any], Floats]
"""(rows of many clients, the query of its kind) -> (clients, numbers)."""

STATISTICS: dict[str, Statistic] = {
    "accuracy_gap": accuracy_gap,
    "bin_outcomes": bin_outcomes,
    "calibration_gaps": calibration_gaps,
    "class_histograms": class_histograms,
    "class_counts": class_counts,
    "clipped_nll": clipped_nll,
    "gradients": gradients,
    "local_update": local_updates,
    "scaling_gradients": scaling_gradients,
    "scaling_newton": scaling_newton,
    "scaling_update": scaling_update,
    "pooled_histograms": pooled_histograms,
    "mean_gaps": mean_gaps,
    "mlp_update": mlp_update,
    "outcome_cell": outcome_cell,
    "score_cell": score_cell,
    "score_counts": score_counts,
    "set_counts": set_counts,
    "set_gaps": set_gaps,
    "set_ranks": set_gaps,
    "site_effects": site_effects,
    "temperature_newton": temperature_newton,
    "temperature_scores": temperature_scores,
    "temperature_update": temperature_update,
    "weighted_update": weighted_updates,
}

QUICK: dict[str, Callable[[Shards, Any, Bound, Ring], Words | None]] = {
    "gradients": gradient_words,
    "score_counts": row_words,
    "set_counts": rows_of_sets,
    "set_gaps": rows_of_sets,
    "set_ranks": rows_of_sets,
}
"""Where all rows are bounded and added up in one pass: the sum; None = row by row."""

if apart := set(QUERIES) ^ set(STATISTICS):
    raise ImportError(f"a query without a statistic, or the reverse: {', '.join(sorted(apart))}")


def answer(shards: Shards, request: Request, sites: Integers | None = None) -> Words:
    """Each client's contribution: computed, clipped to the request's bound, encoded.

    Where the bound is per row (subject), what each row (all rows of a subject) adds is clipped and
    encoded, and the client adds these up as integers, saturated (`ClientSums`). No row that the
    data readers accept makes a bounded contribution raise: what overflows is clipped as any other
    number.

    Parameters
    ----------
    sites
        (clients,) the number of each client's site, for questions that depend on it
        (`Query.by_site`)

    Returns
    -------
    Words
        (clients, length) uint64

    Raises
    ------
    InputError
        If the kind is unknown, an unbounded contribution (no privacy) is not finite or leaves the
        ring, or the bound is per subject and the rows do not say whom they are about.
    """
    query, bound, ring = request.query, request.bound, request.ring
    statistic: Callable[..., Floats] = STATISTICS[one_of("query", query.kind, STATISTICS)]
    if query.by_site:
        statistic = partial(statistic, sites=sites)
    if isinstance(query, ScoreCounts):  # a draw knows how many of a client's rows are equal
        cells_of(shards, query, sites)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exact = query.fine and not bound.finite  # no float in between, so that all orders agree
        if (bound.per == "row" or exact) and query.kind in QUICK:
            quick = QUICK[query.kind](shards, query, bound, ring)
            if quick is not None:
                return quick
        if bound.per == "client":
            return encode_bounded(statistic(shards, query), bound, ring)
        sums = ClientSums(shards.clients, bound.length, ring)
        parts, owner = _parts(shards, bound.per)
        step = max(1, ROW_NUMBERS // bound.length)
        for a in range(0, parts.clients, step):
            part = parts.block(a, min(a + step, parts.clients))
            words = encode_bounded(statistic(part, query), bound, ring)
            sums.add(words, owner[a : a + step])
    return sums.saturated()


def check_columns(shards: Shards, query: Query) -> None:
    """Refuse a question that needs a column which these rows do not have.

    The question is tried without rows, so the refusal reveals nothing of them.

    Raises InputError that names the column.
    """
    statistic = STATISTICS[one_of("query", query.kind, STATISTICS)]
    statistic(shards.keep(np.zeros(0, np.int64)), query)


def _parts(shards: Shards, per: Per) -> tuple[Shards, Integers]:
    """Return the parts that are clipped separately, as clients, and the client of each part."""
    return (shards.each_row(), shards.owner) if per == "row" else shards.each_subject()


def contribute(
    shards: Shards | None, request: Request, sites: Integers, *, simulated: bool = True
) -> Words:
    """Return each client's contribution before masks, with its own coin and noise.

    Parameters
    ----------
    shards
        None = clients without rows, of whose columns nothing is known
    sites
        (clients,) the number of each client's site, which keys its randomness
    simulated
        draw coins and noise from the request's seed; False = from the operating system, whatever
        the request says

    Returns
    -------
    Words
        (clients, length) uint64

    Raises
    ------
    InputError
        As `answer`.
    """
    if shards is not None and request.row_rate < 1:
        shards = shards.ordered
        shards = shards.keep(_taken(shards, request, sites, simulated))
    none = np.zeros((len(sites), request.bound.length), np.uint64)
    words = none if shards is None else answer(shards, request, sites)
    if request.noise is None and request.rate >= 1:
        return words
    asked = request.key
    for i, site in enumerate(sites.tolist()):
        if request.rate < 1 and not _heads(request, site, simulated):
            words[i] = 0  # its noise goes out all the same: nobody sees the coin
        if request.noise is not None:
            source = _source(request, Purpose.SHARE, f"site {site} {asked}", simulated)
            words[i] = request.noise.law.client(words[i], request.ring, request.noise, source)
    return words


def _heads(request: Request, site: int, simulated: bool) -> bool:
    """Return the client's secret coin: whether its rows take part in the round."""
    source = _source(request, Purpose.COIN, f"site {site}", simulated)
    if source is not None:
        return bool(source.random() < request.rate)
    return bool(samplers.bernoulli(request.rate, 1, samplers.system_words)[0])


def _taken(shards: Shards, request: Request, sites: Integers, simulated: bool) -> Integers:
    """Places of the rows that take part in the round: each by its own secret coin (Poisson)."""
    taken = []
    for site, start, count in zip(sites, shards.offsets, shards.rows, strict=False):
        source = _source(request, Purpose.COIN, f"rows of site {site}", simulated)
        if source is None:
            heads = samplers.bernoulli(request.row_rate, int(count), samplers.system_words)
            taken.append(start + np.flatnonzero(heads))
        else:  # how many, and then which: the same law as a coin for each row, and faster
            many = source.binomial(count, request.row_rate)
            drawn = source.choice(count, many, replace=False, shuffle=False)
            taken.append(start + np.sort(drawn))
    return np.concatenate(taken)


def _source(request: Request, purpose: Purpose, what: str, simulated: bool) -> Source:
    if simulated and request.seed is not None:
        return stream(request.seed, purpose, request.round, what)
    return None
