"""Sum without seeing rows: contributions in a ring, hidden by masks that cancel in the sum.

`fixed_point` turns floats into integers modulo 2**64; `client_sums` adds up a client's rows;
`masking` simulates the pairwise masks of secure aggregation, with dropouts.
"""

from __future__ import annotations

from fedcal.secure_aggregation.client_sums import ClientSums
from fedcal.secure_aggregation.fixed_point import Ring
from fedcal.secure_aggregation.masking import (
    COMPLETE_UP_TO,
    SEED_BYTES,
    SPARSE_DEGREE,
    mask,
    masks,
    neighbours,
    owed,
    pair_seed,
    reveal,
    stream,
    unmask,
)

__all__ = [
    "COMPLETE_UP_TO",
    "SEED_BYTES",
    "SPARSE_DEGREE",
    "ClientSums",
    "Ring",
    "mask",
    "masks",
    "neighbours",
    "owed",
    "pair_seed",
    "reveal",
    "stream",
    "unmask",
]
