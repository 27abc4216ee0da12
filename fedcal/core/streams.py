"""Seeded random streams: one per (seed, purpose, round), so that nothing shares a stream.

A vector is drawn at once and entry k belongs to client k or coordinate k; no generator per
client. Seeded randomness is for simulation: whoever has the seed can repeat every draw.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import whole
from fedcal.core.parallel import by_rows
from fedcal.core.types import Floats, Words

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
    return whole("seed", seed, 0, 2**63 - 1)


def stream(
    seed: int, purpose: Purpose, round_number: int = 0, what: str = ""
) -> np.random.Generator:
    """Return the stream of one purpose in one round; `what` separates uses that must not share."""
    text = f"fedcal {check_seed(seed)} {int(purpose)} {round_number} {what}"
    key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8")
    return np.random.Generator(np.random.Philox(key=key))


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
