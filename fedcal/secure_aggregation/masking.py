"""Pairwise masks that cancel in the sum (Bonawitz et al. 2017, section 4; Bell et al. 2020).

In one round every two neighbours i < j of the sampled cohort share a seed; i adds the stream of
that seed to its ring vector, j subtracts it. Over the whole cohort the masks cancel exactly.

**This is a simulation of secure aggregation.** Pair seeds come from the run's seed, so that a
run repeats bit for bit; whoever has that seed can remove every mask. Real key agreement
(HKDF over an X25519 shared secret) takes the place of `pair_seed`; nothing else changes.

What the server sees in a round, if it could not compute the seeds itself:

* the cohort and its graph, one masked vector from each survivor, and who dropped out;
* a survivor's vector is uniform modulo 2**64 as long as one of its neighbours is alive, does not
  collude with the server and keeps their seed;
* for each dropped client, the seeds of *this* round that its surviving neighbours shared with it;
* so, the exact sum of the survivors' vectors and nothing more about any one of them. Should the
  graph of the survivors fall apart, it learns the sum of each component. A sum over one client
  (a cohort of one, or all but one dropped out) is that client's vector: secure aggregation of one
  hides nothing. The exact sum is not private by itself; noise is the business of the trust model.

What revealing a dropped client's seeds means: all masks on its vector of this round that it shares
with survivors are gone. If its late message then arrives it could be unmasked, so it **must be
discarded unread**, and a client once counted as dropped stays out of the round, also if only its
answer was slow. Other rounds are untouched: each round has seeds of its own, and from one nobody
can compute another. The clients must believe the server about who dropped. One that lies (it asks
for the seeds of a client whose message it has) reads that client; the self masks and consistency
check of Bonawitz et al. prevent that and are not part of this simulation. A survivor that goes
silent before it revealed what it owes leaves its masks in the sum: the round must fail.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedcal.core.errors import InputError, RoundFailed

COMPLETE_UP_TO = 128
"""Cohorts of at most this many clients use the complete graph."""

SPARSE_DEGREE = 64
"""Neighbours per client in larger cohorts.

The graph without the lost (dropped out or colluding) clients falls apart only if 32 consecutive
ones are lost at two places of the ring. If at most half of n clients are lost, and not chosen by
their place, each pair of places has probability at most 2**-64, hence all together at most
n**2 / 2 * 2**-64: 3e-12 for n = 10,000. Bell et al. (2020) choose the degree by the like reasoning.
"""

SEED_BYTES = 32

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

    Raises
    ------
    InputError
        If i == j, or an integer is outside these ranges.
    """
    if i == j:
        raise InputError(f"pair seed: client {i} shares no seed with itself")
    low, high = (i, j) if i < j else (j, i)
    return _digest("pair", run_seed, round, _bytes("client id", low) + _bytes("client id", high))


def stream(seed: bytes, length: int) -> NDArray[np.uint64]:
    """First `length` 64-bit words of the ChaCha20 key stream (RFC 8439) of a seed.

    The seed is the key. Nonce and block counter start at zero, which is fine because a key serves
    one pair in one round, for this one stream.

    Parameters
    ----------
    seed
        32 bytes.
    length
        Number of words, at least 0.

    Returns
    -------
    NDArray[np.uint64]
        Shape (length,), read-only; words are little-endian on every machine.

    Raises
    ------
    InputError
        If the seed has another length, or `length` is negative.
    """
    if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
        raise InputError(f"mask stream: a seed must be {SEED_BYTES} bytes")
    if length < 0:
        raise InputError(f"mask stream: length is {length}, allowed are integers >= 0")
    cipher = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    words = np.frombuffer(cipher.update(bytes(8 * length)), "<u8")
    return words.astype(np.uint64, copy=False)


def neighbours(cohort: Collection[int], run_seed: int, round: int) -> NDArray[np.int64]:
    """Return the graph of the clients that share masks in a round.

    Complete up to `COMPLETE_UP_TO` clients. Above that, the Harary graph of Bell et al.
    (2020): clients on a ring in a random order keyed by run and round, each the neighbour of the
    `SPARSE_DEGREE` / 2 next ones on both sides; connected, and stays so unless that many
    consecutive clients are lost at two places of the ring.

    Parameters
    ----------
    cohort
        Different client ids, any integers, in any order: the graph depends on the set alone.
    run_seed, round
        As in `pair_seed`.

    Returns
    -------
    NDArray[np.int64]
        Shape (clients, degree). Row k holds, ascending, positions in `sorted(cohort)`: those of
        the neighbours of client `sorted(cohort)[k]`. Symmetric, without self loops. A cohort of
        one has degree 0.

    Raises
    ------
    InputError
        If an id occurs twice or is no integer.
    """
    return _graph(_sorted_ids(cohort), run_seed, round)


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
    cohort, run_seed, round
        As in `neighbours`.
    length
        Length of the contribution, in 64-bit words.

    Returns
    -------
    NDArray[np.uint64]
        Shape (length,).

    Raises
    ------
    InputError
        If the client is not in the cohort, or an argument is out of range.
    """
    return np.asarray(masks([client], cohort, run_seed, round, length)[0])


def masks(
    clients: Sequence[int], cohort: Collection[int], run_seed: int, round: int, length: int
) -> NDArray[np.uint64]:
    """Masks of a block of clients, one row each in the given order; row k is `mask(clients[k])`.

    The stream of a pair inside the block is generated once. Memory is that of the result and of
    the graph: (clients, length) and (cohort, degree).

    Parameters
    ----------
    clients
        Different members of the cohort.
    cohort, run_seed, round, length
        As in `mask`.

    Returns
    -------
    NDArray[np.uint64]
        Shape (len(clients), length).

    Raises
    ------
    InputError
        If a client is not in the cohort or occurs twice, or an argument is out of range.
    """
    ids, place = _places(cohort)
    row = {_member(client, place): k for k, client in enumerate(clients)}
    if len(row) != len(clients):
        raise InputError("masks: a client occurs twice in the block")
    if length < 0:
        raise InputError(f"masks: length is {length}, allowed are integers >= 0")
    graph = _graph(ids, run_seed, round)
    block = np.zeros((len(row), length), np.uint64)
    for client, k in row.items():
        for position in graph[place[client]].tolist():
            neighbour = ids[position]
            partner = row.get(neighbour)
            if partner is not None and neighbour < client:
                continue  # done when the loop was, or will be, at the smaller id
            words = stream(pair_seed(run_seed, client, neighbour, round), length)
            _apply(block[k], words, add=client < neighbour)
            if partner is not None:
                _apply(block[partner], words, add=neighbour < client)
    return block


def owed(
    dropped: Iterable[int], cohort: Collection[int], run_seed: int, round: int
) -> dict[int, tuple[int, ...]]:
    """Return the survivors to ask for seeds: survivor -> its dropped neighbours, ascending.

    Survivors without a dropped neighbour are absent. Empty if nobody dropped.

    Parameters
    ----------
    dropped
        Members of the cohort whose vectors are not in the sum.
    cohort, run_seed, round
        As in `neighbours`.

    Raises
    ------
    InputError
        If a dropped client is not in the cohort.
    """
    ids, place = _places(cohort)
    gone = {_member(client, place) for client in dropped}
    graph = _graph(ids, run_seed, round)
    debts: dict[int, list[int]] = {}
    for lost in sorted(gone):
        for position in graph[place[lost]].tolist():
            if ids[position] not in gone:
                debts.setdefault(ids[position], []).append(lost)
    return {survivor: tuple(debts[survivor]) for survivor in sorted(debts)}


def reveal(
    survivor: int, dropped: Iterable[int], cohort: Collection[int], run_seed: int, round: int
) -> dict[int, bytes]:
    """Return the seeds that one survivor shares with dropped neighbours in this round.

    Dropped clients that are no neighbours of the survivor are left out.

    Parameters
    ----------
    survivor
        Member of the cohort whose vector is in the sum.
    dropped
        Members of the cohort whose vectors are not, and now never will be, in the sum.
    cohort, run_seed, round
        As in `neighbours`.

    Returns
    -------
    dict[int, bytes]
        Dropped client -> 32 bytes.

    Raises
    ------
    InputError
        If an id is not in the cohort, or the survivor is asked about itself: a client that would
        answer that with its seeds would unmask the vector it has sent.
    """
    ids, place = _places(cohort)
    me = _member(survivor, place)
    gone = sorted({_member(client, place) for client in dropped})
    if me in gone:
        raise InputError(f"reveal: client {me} is both survivor and dropped")
    near = set(_graph(ids, run_seed, round)[place[me]].tolist())
    return {lost: pair_seed(run_seed, me, lost, round) for lost in gone if place[lost] in near}


def unmask(
    total: NDArray[np.uint64],
    revealed: Mapping[int, Mapping[int, bytes]],
    length: int,
    expected: Mapping[int, Collection[int]] | None = None,
) -> NDArray[np.uint64]:
    """Remove from the survivors' sum the masks that their dropped neighbours would have cancelled.

    Parameters
    ----------
    total
        Shape (length,): sum modulo 2**64 of the survivors' masked vectors.
    revealed
        survivor -> {dropped client: seed}, the answers of `reveal`.
    length
        Length of a contribution.
    expected
        What `owed` says. Give it whenever clients can go silent: a total with a missing seed is
        uniform garbage that nothing later would notice.

    Returns
    -------
    NDArray[np.uint64]
        New array (length,): the exact sum of the survivors' vectors.

    Raises
    ------
    InputError
        If `total` has another dtype or shape, a seed is malformed, or a client appears both as
        survivor and as dropped.
    RoundFailed
        If the revealed pairs are not exactly the expected ones.
    """
    words = np.asarray(total)
    if words.dtype != np.uint64 or words.shape != (length,):
        raise InputError(
            f"unmask: total is {words.dtype} of shape {words.shape}, expected uint64 ({length},)"
        )
    pairs = {(survivor, lost) for survivor, seeds in revealed.items() for lost in seeds}
    both = {lost for _, lost in pairs} & {survivor for survivor, _ in pairs}
    if both:
        raise InputError(f"unmask: client {min(both)} is both survivor and dropped")
    if expected is not None:
        wanted = {(survivor, lost) for survivor, gone in expected.items() for lost in gone}
        if pairs != wanted:
            raise RoundFailed(
                f"unmask: {len(wanted - pairs)} of {len(wanted)} pair seeds of dropped clients "
                f"are missing and {len(pairs - wanted)} were not requested; the sum stays masked"
            )
    plain = words.copy()
    for survivor, seeds in revealed.items():
        for lost, seed in seeds.items():
            _apply(plain, stream(seed, length), add=lost < survivor)
    return plain


def _apply(target: NDArray[np.uint64], words: NDArray[np.uint64], add: bool) -> None:
    """Add or subtract in place; numpy's unsigned arrays wrap modulo 2**64 without a warning."""
    (np.add if add else np.subtract)(target, words, out=target)


def _graph(ids: Sequence[int], run_seed: int, round: int) -> NDArray[np.int64]:
    graph = _cached_graph(tuple(ids), run_seed, round)
    graph.setflags(write=False)  # all who ask share it
    return graph


@lru_cache(maxsize=2)  # every client and block of a round asks for the same one
def _cached_graph(ids: tuple[int, ...], run_seed: int, round: int) -> NDArray[np.int64]:
    n = len(ids)
    if n <= COMPLETE_UP_TO:
        everybody = np.tile(np.arange(n), (n, 1))
        return everybody[~np.eye(n, dtype=bool)].reshape(n, max(n - 1, 0))
    # Sorting random words gives a random permutation; stable, so that a tie repeats, too.
    order = np.argsort(stream(_digest("graph", run_seed, round), n), kind="stable")
    steps = np.arange(1, SPARSE_DEGREE // 2 + 1)
    around = (np.arange(n)[:, None] + np.concatenate([-steps, steps])) % n
    table = np.empty((n, SPARSE_DEGREE), np.int64)
    table[order] = np.sort(order[around], axis=1)
    return table


def _digest(purpose: str, run_seed: int, round: int, rest: bytes = b"") -> bytes:
    # Fixed widths: no two different inputs have the same encoding.
    domain = f"fedcal/masking/1/{purpose}\0".encode()
    seed = _bytes("run seed", run_seed, _RUN_SEED_BYTES)
    number = _bytes("round", round, _ROUND_BYTES, signed=False)
    return hashlib.sha256(domain + seed + number + rest).digest()


def _bytes(name: str, value: int, width: int = _ID_BYTES, signed: bool = True) -> bytes:
    try:
        return operator.index(value).to_bytes(width, "little", signed=signed)
    except (OverflowError, TypeError):
        kind = "signed" if signed else "unsigned"
        raise InputError(
            f"masking: {name} is {value!r}, allowed are {kind} integers of {8 * width} bits"
        ) from None


def _sorted_ids(cohort: Collection[int]) -> list[int]:
    ids = sorted(_id(client) for client in cohort)
    if len(set(ids)) != len(ids):
        raise InputError("masking: a client id occurs twice in the cohort")
    return ids


def _places(cohort: Collection[int]) -> tuple[list[int], dict[int, int]]:
    """Return the ids in ascending order, and the place of each."""
    ids = _sorted_ids(cohort)
    return ids, {client: k for k, client in enumerate(ids)}


def _id(client: Any) -> int:
    # numpy's integers become Python's: they compare exactly, whatever their types.
    try:
        return operator.index(client)
    except TypeError:
        raise InputError(f"masking: client id {client!r} is not an integer") from None


def _member(client: int, place: Mapping[int, int]) -> int:
    number = _id(client)
    if number not in place:
        raise InputError(f"masking: client {number} is not in the cohort of {len(place)}")
    return number
