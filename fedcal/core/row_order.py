"""Order of a client's rows, and draws of them, that depend on the multiset of its rows alone.

Few questions need them, so a site's process loads this only when one is asked.
"""

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.fitting import by_rows
from fedcal.core.numerics import Floats, Integers, Words
from fedcal.core.shards import Shards

_MIX = tuple(np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def uniforms(shards: Shards, seed: int) -> Floats:
    """Return a number in [0, 1) for each row, a function of the multiset of rows, (n,).

    It is a hash of the seed, of what the row says (scores with -0 as 0, label, the group's name),
    and of its number among equal rows: of its subject, or of its client where subjects are not
    known. So with one subject, or row, more or less all others keep theirs.
    """
    copy = shards.derived("copy", _copies)
    keyed = mixed(mixed(np.array(seed, np.uint64)) ^ copy)
    return in_unit_interval(mixed(_words(shards) ^ keyed))


def drawn(shards: Shards, seed: int) -> NDArray[np.bool_]:
    """Return which row of each client that has any is drawn, each equally probable, (n,).

    It is the row of the least `uniforms`.
    """
    first, order = np.zeros(shards.size, np.bool_), order_of(shards)
    order = order[np.lexsort((uniforms(shards, seed)[order], shards.owner))]
    first[order[shards.offsets[:-1][shards.rows > 0]]] = True
    return first


def order_of(shards: Shards) -> Integers:
    """Return the rows in the order of `Shards.ordered`, (n,)."""
    return shards.derived("order", _order, carry=False)


def _order(shards: Shards) -> Integers:
    words, about = _words(shards), _about(shards)
    order = np.lexsort((about, words, shards.owner))
    if _ties(shards, order)[1].all():
        return order
    every = [key for x in _columns(shards) for key in x.T]  # rows that differ have one hash
    return np.lexsort((about, *every, words, shards.owner))


def _columns(shards: Shards) -> list[NDArray[Any]]:
    """Return what each row says, (n, numbers) each, but its subject: a number that others set.

    A group's number depends on the other groups, too; its name does not.
    """
    columns = [shards.logits, shards.labels, shards.other, shards.inputs]
    if shards.groups is not None:
        names = [hashlib.blake2b(g.encode(), digest_size=8) for g in shards.group_names]
        digests = np.frombuffer(b"".join(name.digest() for name in names), "<u8")
        columns.append(digests[shards.groups])
    given = [column for column in columns if column is not None]
    return [column.reshape(shards.size, math.prod(column.shape[1:])) for column in given]


def _words(shards: Shards) -> Words:
    return shards.derived("hash", lambda s: row_hashes(*_columns(s)))


def _about(shards: Shards) -> Integers:
    return np.zeros(shards.size, np.int64) if shards.subjects is None else shards.subjects


def _ties(shards: Shards, order: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the places of rows with the hash of the row before, and which equal it."""
    alike = (np.diff(_words(shards)[order]) == 0) & (np.diff(shards.owner[order]) == 0)
    at = np.flatnonzero(alike)
    pairs = [x[order[[at, at + 1]]] for x in _columns(shards)]
    return at + 1, np.all([(a == b).all(axis=1) for a, b in pairs], axis=0)


def _copies(shards: Shards) -> Words:
    """Return each row's number among equal ones of its client and subject, (n,)."""
    order = order_of(shards)
    tied, equal = _ties(shards, order)
    first, copy = np.arange(shards.size), np.empty(shards.size, np.uint64)
    first[tied[equal & (np.diff(_about(shards)[order])[tied - 1] == 0)]] = 0
    copy[order] = np.arange(shards.size) - np.maximum.accumulate(first)
    return copy


def mixed(x: NDArray[Any]) -> Words:
    """Mix the bits of 64-bit words with splitmix64 (Steele, Lea & Flood 2014), shape kept."""
    with np.errstate(over="ignore"):
        x = x + _MIX[0]
        x = (x ^ (x >> np.uint64(30))) * _MIX[1]
        x = (x ^ (x >> np.uint64(27))) * _MIX[2]
    return np.asarray(x ^ (x >> np.uint64(31)))


def in_unit_interval(words: Words) -> Floats:
    """Return the numbers in [0, 1) that mixed words stand for, shape kept."""
    return np.asarray((words >> np.uint64(11)) * 2.0**-53)


def row_hashes(*columns: NDArray[Any]) -> Words:
    """Return a hash of each row's numbers, (n, numbers) each -> (n,).

    Numbers count by their values as float64, so -0 is 0; unsigned 64-bit words by their bits.
    """
    out = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        keys = mixed(np.arange(column.shape[1], dtype=np.uint64)) | np.uint64(1)

        def fill(part: slice, column: NDArray[Any] = column, keys: Words = keys) -> None:
            x = column[part]
            bits = x if x.dtype == np.uint64 else (x.astype(np.float64) + 0.0).view(np.uint64)
            out[part] = mixed(out[part] ^ ((bits ^ (bits >> np.uint64(32))) * keys).sum(axis=1))

        by_rows(fill, *column.shape)
    return out
