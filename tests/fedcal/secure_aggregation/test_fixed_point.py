"""Contributions as integers: exact, within the ring whatever comes, clamped where rows add up."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import each_is_refused, refused

from fedcal.core.checks import ContributionRefused
from fedcal.secure_aggregation import ClientSums, Ring

GRID = 2.0**-24


def signed(encoded: np.ndarray) -> list[int]:
    return [int(v) for v in encoded.view(np.int64).ravel()]


def exact(x: float, grid: float) -> int:
    """Truncation toward zero in rational arithmetic."""
    return math.trunc(Fraction(x) / Fraction(grid))


# No deadline: no test depends on the clock. Derandomized: a run repeats.
steady = settings(deadline=None, derandomize=True)
grids = st.integers(-80, 80).map(lambda e: 2.0**e)


@steady
@given(
    x=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8),
    grid=grids,
    clients=st.integers(1, 2**40),
    headroom=st.integers(0, 2**40),
)
def test_encode_is_exact_truncation_or_refuses(x, grid, clients, headroom):
    ring = Ring(clients, grid, headroom)
    last, beyond = float(ring.limit) * grid, float(ring.limit + 1) * grid
    edges = [math.nextafter(last, 0.0), last, math.nextafter(last, math.inf), beyond]
    for values in (x, *([sign * edge] for edge in edges for sign in (1, -1))):
        want = [exact(v, grid) for v in values]
        if all(abs(v) <= ring.limit for v in want):
            assert signed(ring.encode(np.array(values))) == want
        else:
            with pytest.raises(ContributionRefused):
                ring.encode(np.array(values))


@pytest.mark.parametrize("clients", [1, 2, 3, 7, 100, 10_000, 2**63 - 1])
@pytest.mark.parametrize("headroom", [0, 1, 2**20])
def test_all_clients_at_the_limit_and_the_noise_cannot_wrap(clients, headroom):
    if clients + headroom > 2**63 - 1:
        refused("the capacity that .* leave", Ring, clients, 1.0, headroom)
        return
    ring = Ring(clients, 1.0, headroom)
    assert ring.limit == (2**63 - 1 - headroom) // clients
    assert clients * ring.limit + headroom <= 2**63 - 1
    assert clients * (ring.limit + 1) + headroom > 2**63 - 1
    for sign in (1, -1):  # the worst sum keeps its sign
        worst = np.array([sign * clients * ring.limit]).view(np.uint64)
        noisy = signed(ring.add(worst, np.array([sign * headroom])))
        assert noisy == [sign * (clients * ring.limit + headroom)]


def test_a_refusal_names_place_and_range_and_no_value():
    x = np.zeros((3, 4))
    for bad in (123e30, -math.inf, math.nan):
        x[1, 2] = bad
        message = r"^(?!.*123).*\(1, 2\) leaves the ring's range"
        refused(message, Ring(1, GRID).encode, x, error=ContributionRefused)


def test_nothing_is_broadcast_in_the_ring():
    total = np.array([0, 5, 2**64 - 1], np.uint64)
    assert signed(Ring(1, 1.0).add(total, np.array([-1, -7, 3]))) == [-1, -2, 2]
    for wrong in (np.int64(1), np.array([1]), np.zeros((2, 3), np.int64), np.zeros(3)):
        refused("dtype and shape of what is added", Ring(1, 1.0).add, total, wrong)


def test_what_is_no_ring_and_no_contribution_is_refused():
    grids: list[Any] = [0.0, -1.0, 3.0, 0.1, math.nan, math.inf, 5e-324, 2.0**-961, 2.0**961]
    table: list[tuple[tuple[Any, ...], str]] = [
        *(((1, g), "^ring: grid is .* powers of two") for g in (*grids, "fine", None, 1.0 + 1j)),
        *(((clients, 1.0), "^ring: clients must be") for clients in (0, -1, 1.5)),
        *(((1, 1.0, room), "^ring: (headroom must|the capacity)") for room in (-1, 0.5, 2**63 - 1)),
    ]
    each_is_refused(table, lambda fields: Ring(*fields))
    table = [(np.array([x]), "dtype") for x in (1j, "1", None)]
    if np.dtype(np.longdouble).itemsize > 8:  # which float64 would round
        table.append((np.array([1.0], np.longdouble), "dtype"))
    big = (np.array([2**62]), np.array([2**64 - 1], np.uint64), np.array([-(2**63)]))
    table += [(x, r"2\*\*53") for x in big]
    each_is_refused(table, Ring(1, 1.0).encode)


# --- a client's rows are added in wide integers and clamped; the oracle is Python's integers ------


@pytest.mark.parametrize(("clients", "spread"), [(1, 2**62), (1000, 2**62), (2**40, 2**40), (2, 3)])
def test_sums_are_exact_and_clamped(clients, spread):
    rng, ring = np.random.default_rng(1), Ring(clients, 1.0, 5)
    owner = np.sort(rng.choice([0, 2, 3, 7], 200))
    words = rng.integers(-spread, spread, (200, 3)).view(np.uint64)
    sums = ClientSums(9, 3, ring)
    for a in range(0, 201, 7):  # in pieces that cut clients in two, and one of none
        sums.add(words[a : a + 7], owner[a : a + 7])
    want = [[0] * 3 for _ in range(9)]
    for row, k in zip(words.view(np.int64).tolist(), owner.tolist(), strict=True):
        want[k] = [a + b for a, b in zip(want[k], row, strict=True)]
    clamped = [[max(-ring.limit, min(ring.limit, v)) for v in client] for client in want]
    assert sums.saturated().view(np.int64).tolist() == clamped
