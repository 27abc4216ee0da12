"""Seeded random streams: one per (seed, purpose, round), so that nothing shares a stream.

A vector is drawn at once and entry k belongs to client k or coordinate k; no generator per
client. Seeded randomness is for simulation: whoever has the seed can repeat every draw.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

import numpy as np

from fedcal.errors import InputError


class Purpose(IntEnum):
    """What a stream is for; the numbers are part of what a seed means, so never renumber."""

    SPLIT = 1
    PARTITION = 2
    SAMPLING = 3
    NOISE = 4
    DROPOUT = 5
    BOOTSTRAP = 6
    SHARE = 7
    COIN = 8


def check_seed(seed: int) -> int:
    """The seed itself if it is a whole number in [0, 2**63)."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number in [0, 2**63), got {seed!r}")
    return int(seed)


def stream(
    seed: int, purpose: Purpose, round_number: int = 0, what: str = ""
) -> np.random.Generator:
    """The stream of one purpose in one round; `what` tells apart uses that must not share."""
    text = f"fedcal {check_seed(seed)} {int(purpose)} {round_number} {what}"
    key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8")
    return np.random.Generator(np.random.Philox(key=key))
