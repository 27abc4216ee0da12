"""The loop without messages: vectorised over clients, in blocks that bound the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedcal.clients.answers import contribute, prepare_rows
from fedcal.core.checks import whole
from fedcal.core.shards import Shards
from fedcal.core.types import Integers, Words
from fedcal.privacy.curator import Asked
from fedcal.secure_aggregation import masks, owed, pair_seed, unmask
from fedcal.storage.artifact import Artifact
from fedcal.strategies.method import Method

if TYPE_CHECKING:
    from fedcal.experiments.runs.engines.secure_sum import SecureSums

BLOCK_NUMBERS = 1 << 17
"""Numbers that a block of clients answers with at most (1 MiB: it stays in the cache)."""

_KEPT_BYTES = 1 << 23

Unavailable = Callable[[int], Integers]
"""Round -> clients that do not answer in it."""

SumOf = Callable[[Asked, Integers], Words]
"""(a round, who answers in it) -> the sum of their contributions, (length,)."""


def run_inline(
    method: Method,
    shards: Shards,
    *,
    unavailable: Unavailable | None = None,
    block: int | None = None,
    sum_of: SumOf | None = None,
) -> Artifact:
    """Drive a method over shards in this process.

    Parameters
    ----------
    method
        fresh; its `secure_aggregation` says whether blocks are masked before they are
        summed, or clients run the protocol (same bits either way)
    shards
        one shard for each of the plan's clients (of any number where `sum_of` is given)
    unavailable
        dropouts, by round
    block
        clients per block; None = as many as fit `BLOCK_NUMBERS`
    sum_of
        in place of the exact sum over the shards, where a study draws or scales sums

    Returns
    -------
    Artifact
        `method.result()` after the last round; it takes what the shards were made of.
    """
    if block is not None:
        whole("block", block, 1)
    # Freed at once: from now on glibc keeps as much freed memory for the next block of clients,
    # instead of giving it back and getting it again page by page (a third of a round's time).
    np.empty(_KEPT_BYTES, np.uint8)
    everybody = cache(lambda size: list(shards.blocks(np.arange(shards.clients), size)))

    def blocks(ids: Integers, size: int) -> Iterable[tuple[Integers, Shards]]:
        """Return blocks of clients; those of all clients are kept for the whole run."""
        return everybody(size) if len(ids) == shards.clients else shards.blocks(ids, size)

    sums = _secure_sums(method) if method.plan.protocol and sum_of is None else None
    try:
        for round_number in range(method.resumed + 1, method.plan.rounds + 1):
            asked = method.open_round(round_number)
            if asked is None:
                break
            alive = asked.clients
            if unavailable is not None:
                alive = np.setdiff1d(alive, unavailable(round_number), assume_unique=True)
            method.charge_round(asked, len(alive))
            if sum_of is None:
                total = _secure_sum(method, blocks, asked, alive, block, sums)
            else:
                total = sum_of(asked, alive)
            method.close_round(asked, total)
    except BaseException:
        method.abandon()
        raise
    finally:
        if sums is not None:
            sums.close()
    artifact = method.result()
    artifact.learnt_on(shards.input)
    return artifact


def _secure_sums(method: Method) -> SecureSums:
    from fedcal.experiments.runs.engines.secure_sum import SecureSums  # sites' records: not always

    return SecureSums(method)


def _secure_sum(
    method: Method,
    blocks: Callable[[Integers, int], Iterable[tuple[Integers, Shards]]],
    asked: Asked,
    alive: Integers,
    block: int | None,
    sums: SecureSums | None,
) -> Words:
    length = asked.request.bound.length
    total = np.zeros(length, np.uint64)
    masked = method.secure_aggregation == "masks"
    cohort, seed = asked.clients.tolist(), method.plan.mask_seed
    collected = None if sums is None else sums.collector(asked.request)
    for ids, part in blocks(alive, block or max(1, BLOCK_NUMBERS // length)):
        prepare_rows(part, asked.request)
        words = contribute(part, asked.request, ids)
        if sums is not None and collected is not None:
            sums.contribute(collected, asked.request, ids, words)
            continue
        if masked:
            words = words + masks(ids.tolist(), cohort, seed, asked.round, length)
        total += words.sum(axis=0, dtype=np.uint64)
    if sums is not None and collected is not None:
        return sums.total(collected, asked.request, set(cohort) - set(alive.tolist()))
    if not masked or not len(alive):
        return total
    debts = owed(set(cohort) - set(alive.tolist()), cohort, seed, asked.round)
    revealed = {
        site: {lost: pair_seed(seed, site, lost, asked.round) for lost in gone}
        for site, gone in debts.items()
    }
    return unmask(total, revealed, length, debts)
