"""Pairwise masks that cancel in the sum (Bonawitz et al. 2017, section 4; Bell et al. 2020).

In one round every two neighbours i < j of the sampled cohort share a seed; i adds the stream of
that seed to its ring vector, j subtracts it. Over the whole cohort the masks cancel exactly.

**This is a simulation of secure aggregation.** Pair seeds come from the run's seed, so that a
run repeats bit for bit; whoever has that seed can remove every mask. Real key agreement
(HKDF over an X25519 shared secret) takes the place of `pair_seed`; nothing else changes.

A server that could not compute the seeds would see uniform vectors, as long as one neighbour of
each client that answered answers, too. Here it has the seed: it takes the masks that dropouts leave
in the sum off by itself (`unmask`), with no further message. `committee` and `messages` have the
protocol in which nobody could. A sum over one client hides nothing; the exact sum is not private by
itself, and noise is the business of the trust model.
"""

import hashlib
from collections.abc import Collection
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedcal.secure_aggregation.roster import stream

COMPLETE_UP_TO = 128
"""Cohorts of at most this many clients use the complete graph."""

SPARSE_DEGREE = 64
"""Neighbours per client in larger cohorts.

The graph without the lost (dropped out or colluding) clients falls apart only if 32 consecutive
ones are lost at two places of the ring. If at most half of n clients are lost, and not chosen by
their place, each pair of places has probability at most 2**-64, hence all together at most
n**2 / 2 * 2**-64: 3e-12 for n = 10,000. Bell et al. (2020) choose the degree by the like reasoning.
"""

_ID_BYTES = 16
_RUN_SEED_BYTES = 32
_ROUND_BYTES = 8


def pair_seed(run_seed: int, i: int, j: int, round: int) -> bytes:
    """32 bytes that clients i and j share in one round; the same for (i, j) and (j, i).

    Stands where HKDF(X25519 shared secret of i and j, round) stands in the real protocol. Here it
    is derived from the run's seed so that a simulation repeats, and hence protects nobody against
    who has that seed.

    Parameters
    ----------
    run_seed
        Seed of the run, any integer of at most 256 bits with its sign.
    i, j
        Two different client ids, integers of at most 128 bits with their sign.
    round
        Number of the round, 0 to 2**64 - 1.

    """
    return _digest("pair", run_seed, round, _bytes(min(i, j)) + _bytes(max(i, j)))


def mask(
    client: int, cohort: Collection[int], run_seed: int, round: int, length: int
) -> NDArray[np.uint64]:
    """Return the sum of +-stream over a client's neighbours, mod 2**64: its mask.

    Plus where the client's id is the smaller of the two, else minus. A cohort of one has a zero
    mask: secure aggregation of one hides nothing.

    Parameters
    ----------
    client
        Id of a member of the cohort.
    cohort
        Different client ids, any integers, in any order.
    run_seed, round
        As in `pair_seed`.
    length
        Length of the contribution, in 64-bit words.

    Returns
    -------
    NDArray[np.uint64]
        Shape (length,).

    """
    ids = tuple(sorted(map(int, cohort)))
    total = np.zeros(length, np.uint64)
    for position in neighbours(ids, run_seed, round)[ids.index(client)].tolist():
        words = stream(pair_seed(run_seed, client, ids[position], round), length)
        total = total + words if client < ids[position] else total - words  # they wrap
    return total


def unmask(
    total: NDArray[np.uint64],
    answered: Collection[int],
    cohort: Collection[int],
    run_seed: int,
    round: int,
) -> NDArray[np.uint64]:
    """Return the sum of the vectors of those who answered, without masks.

    Masks of the whole cohort cancel, so the masks of the others are what is left of them.

    Parameters
    ----------
    total
        Sum modulo 2**64 of the masked vectors of those who answered.
    answered, cohort
        Client ids; the first are some of the second.
    run_seed, round
        As in `pair_seed`.
    """
    for lost in sorted(set(cohort) - set(answered)):
        total = total + mask(lost, cohort, run_seed, round, len(total))
    return total


@lru_cache(maxsize=2)  # every client and block of a round asks for the same one
def neighbours(ids: tuple[int, ...], run_seed: int, round: int) -> NDArray[np.int64]:
    """Return the graph of the clients that share masks in a round.

    Complete up to `COMPLETE_UP_TO` clients. Above that, the Harary graph of Bell et al.
    (2020): clients on a ring in a random order keyed by run and round, each the neighbour of the
    `SPARSE_DEGREE` / 2 next ones on both sides; connected, and stays so unless that many
    consecutive clients are lost at two places of the ring.

    Parameters
    ----------
    ids
        of the clients, ascending
    run_seed, round
        as in `pair_seed`

    Returns
    -------
    NDArray[np.int64]
        Shape (clients, degree). Row k holds, ascending, the positions in `ids` of the neighbours of
        client `ids[k]`. Symmetric, without self loops. A cohort of one has degree 0.
    """
    n = len(ids)
    if n <= COMPLETE_UP_TO:
        everybody = np.tile(np.arange(n), (n, 1))
        table = everybody[~np.eye(n, dtype=bool)].reshape(n, max(n - 1, 0))
    else:
        # Sorting random words gives a random permutation; stable, so that a tie repeats, too.
        order = np.argsort(stream(_digest("graph", run_seed, round), n), kind="stable")
        steps = np.arange(1, SPARSE_DEGREE // 2 + 1)
        around = (np.arange(n)[:, None] + np.concatenate([-steps, steps])) % n
        table = np.empty((n, SPARSE_DEGREE), np.int64)
        table[order] = np.sort(order[around], axis=1)
    table.setflags(write=False)  # all who ask share it
    return table


def _digest(purpose: str, run_seed: int, round: int, rest: bytes = b"") -> bytes:
    # Fixed widths: no two different inputs have the same encoding.
    domain = f"fedcal/masking/1/{purpose}\0".encode()
    numbers = _bytes(run_seed, _RUN_SEED_BYTES) + int(round).to_bytes(_ROUND_BYTES, "little")
    return hashlib.sha256(domain + numbers + rest).digest()


def _bytes(value: int, width: int = _ID_BYTES) -> bytes:
    return int(value).to_bytes(width, "little", signed=True)
