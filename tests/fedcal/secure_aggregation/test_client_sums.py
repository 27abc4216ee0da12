"""A client's rows are added in wide integers and clamped: one row more moves little, always.

Oracle: Python's integers.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcal.core.numerics import Integers, Words
from fedcal.secure_aggregation import ClientSums, Ring

WORDS = st.integers(-(2**63), 2**63 - 1)


def by_hand(words: Words, owner: Integers, clients: int, ring: Ring) -> list[list[int]]:
    signed = words.view(np.int64).tolist()
    sums = [[0] * words.shape[1] for _ in range(clients)]
    for row, k in zip(signed, owner.tolist(), strict=True):
        sums[k] = [a + b for a, b in zip(sums[k], row, strict=True)]
    return [[max(-ring.limit, min(ring.limit, v)) for v in total] for total in sums]


@pytest.mark.parametrize("clients_in_ring", [1, 2, 1000, 2**40])
@pytest.mark.parametrize("spread", [2**62, 2**40, 3])
def test_sums_are_exact_and_clamped(clients_in_ring, spread):
    rng = np.random.default_rng(1)
    ring = Ring(clients_in_ring, 1.0, 5)
    owner = np.sort(rng.choice([0, 2, 3, 7], 200))
    words = rng.integers(-spread, spread, (200, 3)).view(np.uint64)
    sums = ClientSums(9, 3, ring)
    for a in range(0, 200, 7):  # in pieces that cut clients in two
        sums.add(words[a : a + 7], owner[a : a + 7])
    sums.add(words[:0], owner[:0])
    assert sums.saturated().view(np.int64).tolist() == by_hand(words, owner, 9, ring)


@given(st.lists(WORDS, max_size=9), WORDS, st.sampled_from([1, 3, 10**6, 2**62]))
def test_one_row_more_moves_a_sum_by_at_most_that_row(rows, row, clients):
    def summed(values: list[int]) -> int:
        sums = ClientSums(1, 1, Ring(clients, 1.0))
        column = np.array(values, np.int64).reshape(-1, 1).view(np.uint64)
        sums.add(column, np.zeros(len(values), np.int64))
        return int(sums.saturated().view(np.int64)[0, 0])

    assert abs(summed([*rows, row]) - summed(rows)) <= abs(row)
