"""The one function by which every engine answers a question."""

import numpy as np

import fedcal.clients.questions  # noqa: F401  # a message may name any of ours
from fedcal.core.numerics import Integers, Purpose, Words, stream
from fedcal.core.shards import Shards
from fedcal.mechanisms import Source, samplers
from fedcal.privacy.query import Query, Request
from fedcal.secure_aggregation import ClientSums
from fedcal.units import encode_bounded

ROW_NUMBERS = 1 << 18
"""Numbers that are clipped at once where the bound is per row or subject."""


def answer(shards: Shards, request: Request, sites: Integers | None = None) -> Words:
    """Each client's contribution: computed, clipped to the request's bound, encoded.

    Where the bound is per row (subject), what each row (all rows of a subject) adds is clipped and
    encoded, and the client adds these up as integers, saturated (`ClientSums`). No row that the
    data readers accept makes a bounded contribution raise: what overflows is clipped as any other
    number.

    Parameters
    ----------
    sites
        (clients,) the number of each client's site, where an answer depends on it

    Returns
    -------
    Words
        (clients, length) uint64

    Raises
    ------
    InputError
        If an unbounded contribution (no privacy) is not finite or leaves the ring, or the bound is
        per subject and the rows do not say whom they are about.
    """
    query, bound, ring = request.query, request.bound, request.ring
    query.prepare(shards, sites)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exact = query.fine and not bound.finite  # no float in between, so that all orders agree
        if bound.per == "row" or exact:
            quick = query.row_words(shards, bound, ring)
            if quick is not None:
                return quick
        if bound.per == "client":
            return encode_bounded(query.sums(shards, sites), bound, ring)
        sums = ClientSums(shards.clients, bound.length, ring)
        rows = bound.per == "row"  # parts are clipped separately
        parts, owner = (shards.each_row(), shards.owner) if rows else shards.each_subject()
        step = max(1, ROW_NUMBERS // bound.length)
        for a in range(0, parts.clients, step):
            part = parts.block(a, min(a + step, parts.clients))
            sums.add(encode_bounded(query.sums(part), bound, ring), owner[a : a + step])
    return sums.saturated()


def check_columns(shards: Shards, query: Query) -> None:
    """Refuse a question that needs a column which these rows do not have.

    The question is tried without rows, so the refusal reveals nothing of them.

    Raises InputError that names the column.
    """
    query.sums(shards.keep(np.zeros(0, np.int64)))


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
            words[i] = request.noise.mechanism.client(words[i], request.ring, request.noise, source)
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
