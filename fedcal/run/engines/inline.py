"""The loop without messages: vectorised over clients, in blocks that bound the memory."""

from collections.abc import Callable
from functools import cache

import numpy as np

from fedcal.clients.answers import contribute
from fedcal.core import checks, fitting, numerics
from fedcal.core.shards import Task
from fedcal.datasets import Population
from fedcal.privacy.curator import OpenRound
from fedcal.privacy.query import Request
from fedcal.secure_aggregation.roster import Committee
from fedcal.storage.artifact import Artifact
from fedcal.strategies.method import Method

BLOCK_NUMBERS = 1 << 18
"""Numbers that a block of clients answers with, or reads, at most (2 MiB: they stay in the cache;
an answer or the rows of a single client may have more)."""

_KEPT_BYTES = 1 << 23

Unavailable = Callable[[int], numerics.Integers]
"""Round -> clients that do not answer in it."""

SumOf = Callable[[OpenRound, numerics.Integers], numerics.Words]
"""(a round, who answers in it) -> the sum of their contributions, (length,)."""


def run_inline(
    method: Method,
    shards: Population,
    *,
    unavailable: Unavailable | None = None,
    block: int | None = None,
    sum_of: SumOf | None = None,
) -> Artifact:
    """Drive a method over clients' rows in this process.

    Contributions are added up as they are: masks come off the sum, and the protocol of secure
    aggregation opens the same sum or fails. So neither is computed: their bytes are counted, and a
    round fails where the protocol would. Engines with messages, flower and grpc, compute them.

    Parameters
    ----------
    method
        fresh
    shards
        rows of each of the plan's clients (of any number where `sum_of` is given), in memory or
        read in blocks
    unavailable
        dropouts, by round
    block
        clients per block; None = as many as fit `BLOCK_NUMBERS`
    sum_of
        in place of the exact sum over the shards, where a study draws or scales sums, or other
        processes hold the rows

    Returns
    -------
    Artifact
        `method.result()` after the last round; it takes what the shards were made of.
    """
    if sum_of is None:
        local = local_sums(shards, block)
        sum_of = lambda asked, alive: local(asked.request, alive)  # noqa: E731
    try:
        for round_number in range(method.resumed + 1, method.plan.rounds + 1):
            asked = method.open_round(round_number)
            if asked is None:
                break
            alive = asked.clients
            if unavailable is not None and len(gone := unavailable(round_number)):
                alive = np.setdiff1d(alive, gone, assume_unique=True)
            method.charge_round(asked, len(alive))
            _check_members(method, asked, alive)
            method.close_round(asked, sum_of(asked, alive))
    except BaseException:
        method.abandon()
        raise
    artifact = method.result()
    artifact.learnt_on(shards.input)
    return artifact


def _check_members(method: Method, asked: OpenRound, alive: numerics.Integers) -> None:
    """Raise RoundFailed where too few members of the committee are there to open the sum."""
    if method.plan.committee is None:
        return
    committee = Committee.of_first(*method.plan.committee)
    away = np.setdiff1d(asked.clients, alive, assume_unique=True)
    there = len(np.setdiff1d(committee.members, away))
    if there < committee.threshold:
        raise checks.RoundFailed(
            f"round {asked.round}: {there} members of the committee confirmed the sum, "
            f"{committee.threshold} must; it stays hidden"
        )


def local_sums(
    shards: Population, block: int | None = None, first: int = 0, threads: int | None = None
) -> Callable[[Request, numerics.Integers], numerics.Words]:
    """Return the function that adds up contributions in this process, on all its cores.

    It takes the question, and the places of those who answer among the clients of the shards.

    Parameters
    ----------
    shards
        rows of the clients
    block
        clients per block, see `run_inline`
    first
        number of the first client, where the shards are those of a part
    threads
        None = the cores that may be used, for many rows
    """
    # Freed at once: from now on glibc keeps as much freed memory for the next block of clients,
    # instead of giving it back and getting it again page by page (a third of a round's time).
    np.empty(_KEPT_BYTES, np.uint8)
    everybody = cache(lambda size: shards.tasks(np.arange(shards.clients), size))
    each = shards.size * shards.classes // max(1, shards.clients)

    def add_up(request: Request, alive: numerics.Integers) -> numerics.Words:
        length = request.bound.length
        size = block or max(1, BLOCK_NUMBERS // max(length, each))
        # blocks of all clients are kept for the whole run, with what was derived of their rows
        tasks = everybody(size) if len(alive) == shards.clients else shards.tasks(alive, size)
        many = shards.size * shards.classes >= fitting.MANY
        cores = threads or (fitting.usable_cores() if many else 1)

        def work(task: Task) -> numerics.Words:
            own = np.zeros(length, np.uint64)
            for ids, part in task():
                own += contribute(part, request, ids + first).sum(axis=0, dtype=np.uint64)
            return own

        total = np.zeros(length, np.uint64)
        for own in fitting.in_threads(work, tasks, min(cores, len(tasks))):
            total += own
        return total

    return add_up
