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

from fedcal.core.checks import whole


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
