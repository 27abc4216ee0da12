"""Seeded random streams: one per (seed, purpose, round), so that nothing shares a stream.

A vector is drawn at once and entry k belongs to client k or coordinate k; no generator per
client. Seeded randomness is for simulation: whoever has the seed can repeat every draw.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers

_MIX = tuple(np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Purpose(IntEnum):
    """Purpose of a random stream; its number is part of what a seed means: never renumber."""

    SPLIT = 1
    PARTITION = 2
    SAMPLING = 3
    NOISE = 4
    DROPOUT = 5
    BOOTSTRAP = 6
    SHARE = 7
    COIN = 8


def check_seed(seed: int) -> int:
    """Return the seed if it is a whole number in [0, 2**63)."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number in [0, 2**63), got {seed!r}")
    return int(seed)


def stream(
    seed: int, purpose: Purpose, round_number: int = 0, what: str = ""
) -> np.random.Generator:
    """Return the stream of one purpose in one round; `what` separates uses that must not share."""
    text = f"fedcal {check_seed(seed)} {int(purpose)} {round_number} {what}"
    key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8")
    return np.random.Generator(np.random.Philox(key=key))


def hashed(rows: Floats, seed: int) -> Floats:
    """Return a number in [0, 1) for each row, a hash of its bits and the seed, (n, k) -> (n,)."""
    bits = (np.ascontiguousarray(rows, np.float64) + 0.0).view(np.uint64)  # -0 is 0
    keys = _mixed(np.arange(bits.shape[1], dtype=np.uint64) ^ _mixed(np.array(seed, np.uint64)))
    state = _mixed(_mixed(bits ^ keys).sum(axis=1, dtype=np.uint64))
    return np.asarray((state >> np.uint64(11)) * 2.0**-53)


def _mixed(x: NDArray[Any]) -> NDArray[Any]:
    """Mix bits with splitmix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        x = x + _MIX[0]
        x = (x ^ (x >> np.uint64(30))) * _MIX[1]
        x = (x ^ (x >> np.uint64(27))) * _MIX[2]
    return np.asarray(x ^ (x >> np.uint64(31)))


def row_draws(content: Floats, within: Integers, key: Integers, seed: int) -> Floats:
    """Draw a number in [0, 1) for each row, whatever the order in which rows stand.

    It is a hash of the seed, the row's key, its content, and its number among the rows of equal
    content in its group `within`. Rows that count alike may change places, so a sum over a group
    is a function of the multiset of its rows, and one row more or less changes one row's part.

    Parameters
    ----------
    content
        (n, k) all that a row's part depends on
    within
        (n,) group of each row: its client
    key
        (n,) what tells groups apart, whichever of them are computed together
    seed
        of the draws

    Returns
    -------
    Floats
        (n,)
    """
    sorts = np.column_stack([content + 0.0, within])  # -0 is 0
    order = np.lexsort(sorts.T)
    new = np.ones(len(order), np.bool_)
    new[1:] = (sorts[order[1:]] != sorts[order[:-1]]).any(axis=1)
    place, number = np.arange(len(order)), np.empty(len(order), np.int64)
    number[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return hashed(np.column_stack([content, key, number]), seed)


def key_of(*parts: Any) -> str:
    """Return one text for equal parts, whatever their types: a `what` for `stream`.

    Numbers count by value (3, 3.0 and numpy's are one; others to 9 significant digits, because the
    last ones differ between types of CPU), arrays as lists, tables without order. So a key does not
    change with the way a question travels, nor with a new field of a class: who makes a key lists
    what is in it.

    Parameters
    ----------
    parts
        text, numbers, None, and sequences, arrays and tables of these

    Returns
    -------
    str
        64 hexadecimal digits
    """
    return hashlib.sha256(json.dumps(_plain(parts), sort_keys=True).encode()).hexdigest()


def _plain(part: Any) -> Any:
    if isinstance(part, (np.generic, np.ndarray)):
        part = part.tolist()
    if part is None or isinstance(part, bool):
        return part
    if isinstance(part, str):
        return f"text {part}"  # "3" is another key than 3
    if isinstance(part, Mapping):
        return {str(name): _plain(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_plain(value) for value in part]
    if isinstance(part, float) and not part.is_integer():
        return f"{part:.8e}"
    return str(int(part))
