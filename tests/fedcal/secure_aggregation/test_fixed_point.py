import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refusals import each_is_refused, refused

from fedcal.core.checks import ContributionRefused
from fedcal.secure_aggregation import Ring

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


def test_truncates_toward_zero_so_no_norm_grows():
    x = np.random.default_rng(5).normal(size=(50, 40))
    ring = Ring(50, 2.0**-6)
    back = ring.decode(ring.encode(x))
    assert (np.abs(back) <= np.abs(x)).all()
    assert (np.abs(x) - np.abs(back) < ring.grid).all()
    assert (back * x >= 0).all()
    assert (np.abs(back) < np.abs(x)).any()


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e308, -3e38, 2.0**63, 2.0**39])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_refusal_is_one_line_with_place_and_range(bad, dtype):
    x = np.zeros((3, 4), dtype)
    with np.errstate(over="ignore"):
        x[1, 2] = bad
    with pytest.raises(ContributionRefused) as caught:
        Ring(1, GRID).encode(x)
    message = str(caught.value)
    # limit * grid = 2**39, in the contribution's unit
    assert all(part in message for part in ("(1, 2)", "5.49756e+11", str(2**63 - 1)))
    assert "\n" not in message
    assert repr(bad) not in message or not math.isfinite(bad) or abs(bad) == 2.0**39
    refused(r"\(2, 1\)", Ring(1, GRID).encode, x.T, error=ContributionRefused)
    x[0, 0], x[1, 2] = math.inf, math.nan
    refused(r"\(1, 2\) is not a number", Ring(1, GRID).encode, x, error=ContributionRefused)


def test_decode_reads_signed_integers():
    ring = Ring(1, 0.5)
    total = np.array([0, 1, 2**64 - 1, 2**63, 2**63 - 1], np.uint64)
    assert ring.decode(total).tolist() == [0.0, 0.5, -0.5, -(2.0**62), 2.0**62]
    assert np.isfinite(Ring(1, 2.0**960).decode(total)).all()


def test_add_takes_signed_noise_and_never_broadcasts():
    ring = Ring(1, 1.0)
    total = np.array([0, 5, 2**64 - 1], np.uint64)
    assert signed(ring.add(total, np.array([-1, -7, 3]))) == [-1, -2, 2]
    assert total.tolist() == [0, 5, 2**64 - 1]
    for wrong in (np.int64(1), np.array([1]), np.zeros((2, 3), np.int64)):
        refused("dtype and shape of what is added", ring.add, total, wrong)
    for wrong in (np.zeros(3), np.zeros(3, np.int32), np.zeros(3, np.uint32)):
        refused("dtype and shape of what is added", ring.add, total, wrong)


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


@steady
@given(x=hnp.arrays(np.float64, (4, 5), elements=st.floats(-1e6, 1e6)), seed=st.integers(0, 9))
def test_order_of_clients_changes_no_bit(x, seed):
    ring = Ring(4, GRID)
    order = np.random.default_rng(seed).permutation(4)
    forward = ring.encode(x).sum(axis=0, dtype=np.uint64)
    assert (ring.encode(x[order]).sum(axis=0, dtype=np.uint64) == forward).all()
