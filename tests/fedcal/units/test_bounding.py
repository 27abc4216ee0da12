"""Contributions of a client are within their bound: exactly, in integers, for any floats."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import each_is_refused

from fedcal.core.checks import ContributionRefused
from fedcal.secure_aggregation import Ring
from fedcal.units import SLACK, Bound, Rule, bounded, encode_bounded

RULES: tuple[Rule, ...] = ("joint", "per_block", "per_value")
rules = pytest.mark.parametrize("rule", RULES)
orders = pytest.mark.parametrize("order", [1, 2])
steady = settings(deadline=None, derandomize=True, max_examples=150)

LENGTHS = (3, 1, 4)
NORMS = (2.0, 0.1, 30.0)
FINE = Ring(4, 2.0**-40)


@dataclass(frozen=True)
class Case:
    x: np.ndarray
    bound: Bound
    ring: Ring


def exact_squares(row: np.ndarray, bound: Bound, grid: float) -> list[Fraction]:
    """Square of what the rule limits to 1, of one encoded row; in rational arithmetic."""
    parts = [
        abs(Fraction(int(i)) * Fraction(grid) / Fraction(float(c)))
        for i, c in zip(row.view(np.int64), bound.scale, strict=True)
    ]
    if bound.rule == "per_value":
        return [p**2 for p in parts]
    edges = (0, bound.length) if bound.rule == "joint" else np.cumsum((0, *bound.lengths))
    groups = [parts[a:b] for a, b in pairwise(edges)]
    if bound.order == 1:
        return [sum(group, Fraction()) ** 2 for group in groups]
    return [sum((p**2 for p in group), Fraction()) for group in groups]


def on_the_bound(x: np.ndarray, bound: Bound) -> np.ndarray:
    """Each group of numbers rescaled to a norm of 1, as well as floats can."""
    with np.errstate(all="ignore"):
        x = x / np.abs(x).max(axis=1, keepdims=True)  # or the squares overflow
        factor = np.nan_to_num(1.0 / bound.norms_of(x), posinf=1.0)
        return np.nan_to_num(bound.scaled(x, factor), posinf=1.0, neginf=-1.0)


numbers = st.one_of(
    st.floats(-1e100, 1e100),
    st.floats(-100, 100),
    st.floats(-1e-290, 1e-290),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.3e-308, 1.0, -1.0, 0.1, 1e100, 1e-170, 3e-162]),
)
norms = st.one_of(st.floats(0.1, 10), st.sampled_from([0.1, 0.3, 1.0, 2.0, 10.0]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    if draw(st.booleans()):
        lengths = (lengths[0],) * len(lengths)  # equal blocks take another path
    n = len(lengths)
    limits = tuple(draw(st.lists(norms, min_size=n, max_size=n)))
    bound = Bound(lengths, limits, draw(st.sampled_from(RULES)), draw(st.sampled_from([1, 2])))
    size = bound.length
    rows = draw(st.lists(st.lists(numbers, min_size=size, max_size=size), min_size=1, max_size=3))
    x = np.array(rows)
    if draw(st.booleans()):
        x = on_the_bound(x, bound)
        for _ in range(draw(st.integers(0, 3))):  # some ulps outside of it
            x = np.nextafter(x, np.copysign(np.inf, x))
    grid = 2.0 ** (math.floor(math.log2(min(limits))) - draw(st.integers(0, 50)))
    return Case(x, bound, Ring(draw(st.integers(1, 40)), grid))


@steady
@given(case=cases())
def test_the_encoded_norm_is_exactly_within_the_bound(case):
    words = encode_bounded(case.x, case.bound, case.ring)
    assert words.dtype == np.uint64
    assert words.shape == case.x.shape
    scale = [Fraction(case.ring.grid) / Fraction(float(c)) for c in case.bound.scale]
    for row in words:
        assert max(exact_squares(row, case.bound, case.ring.grid)) <= 1
        # zero-out: a neighbour's sum differs by one such row, within the declared sensitivities
        parts = [abs(int(i)) * c for i, c in zip(row.view(np.int64), scale, strict=True)]
        assert float(sum(p**2 for p in parts)) <= case.bound.sensitivity**2 * (1 + 1e-12)
        assert float(sum(parts)) <= case.bound.l1_sensitivity * (1 + 1e-12)


@pytest.mark.parametrize(("rule", "order"), [("joint", 1), ("per_block", 2)])
def test_a_long_vector_of_equal_numbers_on_the_bound(rule, order):
    """2**16 rounded squares: the longest sum that the slack covers."""
    bound = Bound((2**15, 2**15), (3.0, 0.7), rule, order)
    x = on_the_bound(np.full((1, bound.length), 0.1), bound)
    row = encode_bounded(x, bound, Ring(1, 2.0**-45))[0]
    assert 1 - 1e-6 < max(exact_squares(row, bound, 2.0**-45)) <= 1


@rules
@orders
def test_the_declared_sensitivities_are_reached_and_not_passed(rule, order):
    """The worst client fills one number of each group; of an L1 norm under an L2 bound, all."""
    bound = Bound(LENGTHS, NORMS, rule, order)
    firsts = {"joint": [0], "per_block": [0, 3, 4], "per_value": range(8)}[rule]
    one, every = np.zeros((2, bound.length))
    one[firsts], every[:] = bound.scale[firsts], bound.scale
    words = encode_bounded(10 * np.stack([one, every]), bound, FINE)
    changes = words.view(np.int64) * FINE.grid / bound.scale
    norm, total = np.linalg.norm(changes[0]), np.abs(changes).sum(axis=1).max()
    assert bound.sensitivity * (1 - 1e-9) < norm <= bound.sensitivity
    assert bound.l1_sensitivity * (1 - 1e-9) < total <= bound.l1_sensitivity


@steady
@given(case=cases())
def test_a_vector_inside_the_bound_keeps_every_bit(case):
    with np.errstate(over="ignore", invalid="ignore"):
        inside = on_the_bound(case.x, case.bound) * (1 - 2 * SLACK)
    np.testing.assert_array_equal(bounded(inside, case.bound), inside)
    on_grid = np.trunc(inside / case.ring.grid) * case.ring.grid
    words = encode_bounded(on_grid, case.bound, case.ring)
    np.testing.assert_array_equal(case.ring.decode(words), on_grid)


@pytest.mark.parametrize(("order", "part"), [(2, math.hypot), (1, lambda *x: sum(map(abs, x)))])
def test_only_the_group_that_is_too_long_is_clipped(order, part):
    x = np.array([[30.0, -40.0, 0.0, 0.5]])
    expected: dict[Rule, Any] = {
        "joint": x[0] / part(*x[0]),
        "per_block": [30 / part(30, 40), -40 / part(30, 40), 0, 0.5],
        "per_value": [1, -1, 0, 0.5],
    }
    for rule in RULES:
        clipped = bounded(x, Bound((2, 2), (1.0, 1.0), rule, order))[0]
        np.testing.assert_allclose(clipped, expected[rule], rtol=1e-10)


@rules
def test_no_number_is_refused_where_a_refusal_would_tell_it(rule):
    bound = Bound(LENGTHS, NORMS, rule)
    for place, bad in product((0, 7), (math.nan, -math.inf, 1e300)):
        x = np.linspace(-1, 1, 24).reshape(3, 8)
        x[1, place] = bad
        clipped = bounded(x, bound)
        assert (bound.norms_of(clipped) <= 1).all()
        assert np.sign(clipped[1, place]) == (0 if math.isnan(bad) else np.sign(bad))
        np.testing.assert_array_equal(clipped[[0, 2]], bounded(x[[0, 2]], bound))
        encode_bounded(x, bound, FINE)


def test_without_privacy_only_what_the_ring_cannot_hold_is_refused():
    ring, bound = Ring(100, 2.0**-24), Bound((2,))
    most = ring.limit * ring.grid * (1 - 1e-9)
    np.testing.assert_array_equal(bounded(np.array([[most, -3.25]]), bound), [[most, -3.25]])
    sent = ring.decode(encode_bounded(np.array([[most, -3.25]]), bound, ring))
    np.testing.assert_allclose(sent, [[most, -3.25]], rtol=1e-12)
    for beyond in (most * 1.01, -most * 1.01, math.nan, math.inf):
        with pytest.raises(ContributionRefused, match=r"leaves the ring's range|finite"):
            encode_bounded(np.array([[0.0, beyond]]), bound, ring)
    for shape in ((8,), (2, 7), (2, 4, 2), (0, 7)):
        with pytest.raises(ContributionRefused, match=r"the query asks for \(clients, 8\)"):
            encode_bounded(np.zeros(shape), Bound(LENGTHS, NORMS), FINE)


def test_an_encoding_beyond_the_bound_does_not_leave(monkeypatch):
    monkeypatch.setattr("fedcal.units.bounded", lambda x, bound: x)
    with pytest.raises(ContributionRefused, match="exceeds the query's bound"):
        encode_bounded(np.full((1, 8), 2.0), Bound(LENGTHS, NORMS), FINE)


@pytest.mark.parametrize("norm", [1e-100, 1e100])
def test_the_guarantee_at_the_smallest_and_the_largest_norm(norm):
    bound = Bound((100,), (norm,))
    ring = Ring(1, 2.0 ** (math.floor(math.log2(norm)) - 50))
    x = np.full((1, 100), norm / 10) * (1 + 2.0**-40)
    assert max(exact_squares(encode_bounded(x, bound, ring)[0], bound, ring.grid)) <= 1


def test_a_bound_that_does_not_fit_together_is_refused():
    bad: list[tuple[tuple[Any, ...], str]] = [
        (((3, 2), (1.0,)), "one for each of 2 blocks"),
        (((3,), (1.0,), "joint", 2, "site"), "unknown per 'site'"),
        # at 1e-161 each of 100 numbers of 1.5e-162 has a square of 0, together they are too long
        *(
            (((9,), (c,)), "clip norms must be finite and > 0")
            for c in (0.0, math.nan, 1e-161, 1e161)
        ),
    ]
    each_is_refused(bad, lambda fields: Bound(*fields))
