"""Draws against laws that are computed here by other formulas, and tables against them exactly."""

import decimal
import math
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused
from scipy import stats

from fedcal.mechanisms import choice as drawing
from fedcal.mechanisms import gaussian_sampler, samplers
from fedcal.mechanisms.choice import categorical
from fedcal.mechanisms.gaussian_sampler import discrete_gaussian
from fedcal.mechanisms.samplers import (
    TOTAL_VARIATION,
    Words,
    bernoulli,
    discrete_laplace,
    polya_share,
    seeded_words,
    system_words,
)

LEVEL = 1e-4  # of a test; seeds are fixed, so a test that passes goes on passing
SCALES = (2 / 3, 3 / 2)  # wrong by so much must be noticed

Sampler = Callable[[float, int, Words], np.ndarray]


def seeded(seed: int = 1) -> Words:
    return seeded_words(np.random.Generator(np.random.Philox(seed)))


def sum_of_shares(scale: float, n: int, words: Words) -> np.ndarray:
    return polya_share(scale, 2, 2 * n, words).reshape(n, 2).sum(axis=1)


SAMPLERS: list[tuple[Sampler, Any, float]] = [  # and the least scale of each
    (discrete_laplace, stats.laplace, 0.05),
    (discrete_gaussian, stats.norm, 0.3),
    (sum_of_shares, stats.laplace, 0.05),
]


@pytest.mark.parametrize(("sampler", "distribution", "_"), SAMPLERS)
def test_large_scales_have_the_continuous_distribution(sampler, distribution, _):
    scale = 1.3 * 2.0**38
    drawn = sampler(scale, 10_000, seeded())
    assert stats.kstest(drawn / scale, distribution().cdf).pvalue > LEVEL
    for wrong in SCALES:
        assert stats.kstest(drawn / scale / wrong, distribution().cdf).pvalue < LEVEL
    # the last digits are as random as the first ones
    assert stats.chisquare(np.bincount(drawn & 15, minlength=16)).pvalue > LEVEL


UNIT = 2**128


def masses_of(table: samplers.DrawTable) -> list[int]:
    """Probability of each index in units of 2**-128, read off the table's columns."""
    capacity = 2 ** (128 - table.bits)
    mass = [0] * 2**table.bits
    columns = zip(table.high.tolist(), table.low.tolist(), table.alias.tolist(), strict=True)
    for column, (high, low, alias) in enumerate(columns):
        own = (high << 64) + low
        assert 0 <= own <= capacity
        mass[column] += own
        mass[alias] += capacity - own
    assert sum(mass) == UNIT
    return mass


def total_variation(mass: dict[int, Decimal], weights: dict[int, Decimal]) -> Decimal:
    """Between probabilities and normalised weights, whose keys include the others'."""
    assert {k for k, m in mass.items() if m} <= set(weights)
    total = sum(weights.values())
    return sum(abs(mass.get(k, 0) - weight / total) for k, weight in weights.items()) / Decimal(2)


@pytest.fixture(autouse=True)
def _context():
    """A caller's own decimal context, which must not matter to the library: 45 digits here."""
    with decimal.localcontext(decimal.Context(prec=45)) as context:
        yield context


def geometric_masses(scale: float) -> dict[int, Decimal]:
    mass = {0: 1}
    digits = samplers._digits(scale)
    for j, table in enumerate(digits):
        own = [(d << 12 * j, m) for d, m in enumerate(masses_of(table)) if m]
        mass = {k + d: p * m for k, p in mass.items() for d, m in own}
    return {k: Decimal(p) / UNIT ** len(digits) for k, p in mass.items()}


@pytest.mark.parametrize("scale", [0.05, 1.0, 7.3, 100.0])
def test_laplace_tables_are_within_the_total_variation(scale):
    magnitude = geometric_masses(scale)
    negative = Decimal(masses_of(samplers._negative(scale))[1]) / UNIT
    discrete = {k: p * (1 - negative) for k, p in magnitude.items()}
    discrete |= {-1 - k: p * negative for k, p in magnitude.items()}
    last = max(discrete) + 50
    weights = {k: (-k / Decimal(scale)).exp() for k in range(last + 1)}
    weights |= {-k: w for k, w in weights.items()}
    assert total_variation(discrete, weights) < TOTAL_VARIATION


def gaussian_masses(std: float) -> dict[int, Decimal]:
    mass = {0: 1}
    parts = gaussian_sampler._parts(std)
    for table, middle, shift in parts:
        own = [((i - middle) << shift, m) for i, m in enumerate(masses_of(table)) if m]
        both: dict[int, int] = {}
        for k, p in mass.items():
            for value, m in own:
                both[k + value] = both.get(k + value, 0) + p * m
        mass = both
    return {k: Decimal(p) / UNIT ** len(parts) for k, p in mass.items()}


@pytest.mark.parametrize("std", [0.3, 1.0, 12.5, 51.5, 409.5])
def test_gaussian_tables_are_within_the_total_variation(std):
    discrete = gaussian_masses(std)
    assert len(gaussian_sampler._parts(std)) == (2 if std > 409 else 1)
    double = 2 * Decimal(std) ** 2
    half = {k: (-k * k / double).exp() for k in range(max(discrete) + 21)}
    assert total_variation(discrete, half | {-k: w for k, w in half.items()}) < TOTAL_VARIATION


@pytest.mark.parametrize("std", [409.5, 500.0, 768.0, 1e4, 2.0**20, 1.7 * 2.0**33, 2.0**40])
def test_every_split_is_smooth_enough(std):
    # A split v = v1 + 4^j v2 is safe where x2 given the sum has a std of 2.5 * 2^j (module noise).
    parts = gaussian_sampler._parts(std)
    assert 2 <= len(parts) <= 6
    left = Fraction(std) ** 2
    for (_, _, shift), (_, _, following) in pairwise(parts):
        j = following - shift
        first = Fraction(9 * 4**j)
        assert first * (1 - first / left) >= Fraction(25, 4) * 4**j
        left = (left - first) / 4**j
    assert all(table.bits <= 13 for table, _, _ in parts)


@pytest.mark.parametrize(("scale", "shares"), [(0.3, 5.0), (3.0, 2.0), (20.0, 1.5)])
def test_jumps_and_their_number_are_within_the_total_variation(scale, shares):
    distribution = samplers._shares_of(scale, shares)
    q = (-1 / Decimal(scale)).exp()
    mean = -2 * (1 - q).ln() / Decimal(shares)
    number = {k: Decimal(m) / UNIT for k, m in enumerate(masses_of(distribution.count))}
    poisson = {k: mean**k / math.factorial(k) for k in range(len(number) + 30)}
    assert total_variation(number, poisson) < TOTAL_VARIATION / 8

    tried: dict[int, Decimal] = {}
    geometric = geometric_masses(scale)
    for index, block in enumerate(masses_of(distribution.block)):
        least, sign = 2 ** (index >> 1), (1, -1)[index & 1]
        for g, p in geometric.items():
            size = least + g % least
            accepted = Decimal(-(-UNIT * least // size)) / UNIT  # rounded up
            tried[sign * size] = tried.get(sign * size, 0) + p * accepted * block / UNIT
    accepted = sum(tried.values())
    assert distribution.accepted == pytest.approx(float(accepted), rel=1e-12)
    jumps = {k: p / accepted for k, p in tried.items() if p}
    last = max(max(jumps), 100)
    half = {k: q**k / k for k in range(1, last + 1)}
    gap = total_variation(jumps, half | {-k: w for k, w in half.items()})
    assert mean * gap < TOTAL_VARIATION / 4
    assert distribution.mean == pytest.approx(float(mean), rel=1e-12)


def test_a_jump_is_accepted_exactly_where_the_fraction_says():
    rng = np.random.default_rng(1)
    least = np.int64(1) << rng.integers(0, 47, 3000)
    size = least + rng.integers(0, least)
    # words just around the threshold, where the second word decides, and arbitrary ones
    bounds = [(a << 128) // b for a, b in zip(least.tolist(), size.tolist(), strict=True)]
    near = [min(max(t + int(s), 0), UNIT - 1) for t, s in zip(bounds, rng.integers(-2, 3, 3000))]  # noqa: B905
    near[::3] = [int(a) << 64 | 5 for a in rng.integers(0, 2**64, 1000, dtype=np.uint64)]
    high = np.array([u >> 64 for u in near], np.uint64)
    low = np.array([u & (2**64 - 1) for u in near], np.uint64)
    want = [u * b < a << 128 for u, a, b in zip(near, least.tolist(), size.tolist(), strict=True)]
    assert samplers._below(least, size, high, low).tolist() == want
    assert 500 < sum(want) < 2900


class Given:
    """Words that are known; whether all of them were taken shows in `left`."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def __call__(self, n: int) -> np.ndarray:
        taken, self.left = self.left[:n], self.left[n:]
        assert len(taken) == n
        return np.array(taken, np.uint64)


def test_a_draw_reads_its_table_to_the_last_bit():
    with samplers.exact():
        table = samplers.make_table([Decimal(w) for w in (1, 2, 3, 5, 7, 11, 13)])
    for column in range(8):
        start = column << (64 - table.bits)
        high, low = int(table.high[column]), int(table.low[column])
        alias = int(table.alias[column])
        for rest, second, want in (
            (high - 1, None, column),
            (high, low - 1, column),
            (high, low, alias),
            (high + 1, None, alias),
        ):
            if 0 <= rest < 2 ** (64 - table.bits) and (second is None or second >= 0):
                words = Given(start + rest, *([] if second is None else [second]))
                assert table.draw(1, words).tolist() == [want]
                assert not words.left


def test_coins_have_exactly_their_probability():
    assert TOTAL_VARIATION == 2.0**-60
    assert not bernoulli(0, 1000, seeded()).any()
    assert bernoulli(1, 1000, seeded()).all()
    for p in (0.1, 1 - 2.0**-53, 2.0**-70, 5e-324):
        heads = Fraction(masses_of(samplers._coin(p))[1], UNIT)
        assert abs(heads - Fraction(p)) <= Fraction(1, UNIT)


LOG_WEIGHTS = [0.0, -0.5, -1.25, -3.0, 0.7, -math.inf, -40.0]


@pytest.mark.parametrize(
    "logs",
    [
        [0.0, -0.1, -50.0, -87.0, -100.0, -101.0],
        [1e15, 1e15 - 0.125, 1e15 - 3],
        [-1e-300, 0.0, 2e-17, -1e-5, -math.inf],
        [-700.1, -699.9, -3e307],
        [0.1, 0.3, 1e-20, -77.7],
    ],
)
def test_weights_are_exact_to_the_last_few_units(logs):
    found = drawing._weights(np.array(logs))
    with decimal.localcontext(decimal.Context(prec=400)):
        for value, weight in zip(logs, found, strict=True):
            want = (Decimal(value) - Decimal(max(logs))).exp() * UNIT
            assert abs(weight - want) <= 3
    assert max(found) <= UNIT


def test_an_index_lies_where_the_uniform_number_falls():
    weights = drawing._weights(np.array(LOG_WEIGHTS))
    total, below = sum(weights), 0
    for i, weight in enumerate(weights):
        for place in (below, below + weight - 1) if weight else ():
            uniform = -((-place << 256) // total)  # the least one that falls there
            words = Given(*((uniform >> 64 * j) & (2**64 - 1) for j in range(4)))
            assert categorical(LOG_WEIGHTS, words) == i
        below += weight


EVERY: dict[str, Callable[[int, Words], np.ndarray]] = {
    "discrete_laplace": lambda n, words: discrete_laplace(1e6, n, words),
    "discrete_gaussian": lambda n, words: discrete_gaussian(1e6, n, words),
    "polya_share": lambda n, words: polya_share(1e6, 2, n, words),
    "bernoulli": lambda n, words: bernoulli(0.5, n, words),
    "categorical": lambda n, words: np.array([categorical([0.0] * 9, words) for _ in range(n)]),
}


@pytest.mark.parametrize("draw", EVERY.values(), ids=EVERY)
def test_the_bytes_of_the_operating_system_decide_everything_and_their_number_nothing(
    draw, monkeypatch
):
    drawn, lengths = [], []
    with decimal.localcontext() as context:  # nor does the caller's own precision
        for precision, seed in ((45, 5), (3, 5), (45, 6)):
            context.prec = precision
            for made in (samplers._digits, gaussian_sampler._bell, gaussian_sampler._parts):
                made.cache_clear()
            taken: list[int] = []
            source = np.random.default_rng(seed)

            def urandom(size: int, taken: Any = taken, source: Any = source) -> bytes:
                taken.append(size)
                return bytes(source.bytes(size))

            monkeypatch.setattr(os, "urandom", urandom)
            drawn.append(draw(200, system_words))
            lengths.append(taken)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    assert lengths[0] == lengths[1] == lengths[2]  # so that time tells nothing


def test_what_is_out_of_range_is_refused():
    for sampler, _, least in SAMPLERS:
        assert len(sampler(least, 2, seeded())) == 2
        bad = (math.nan, math.inf, -1.0, least * 0.999, 2.0**40 + 1, "1", True)
        each_is_refused(
            [(scale, "(scale|std) must be") for scale in bad],
            lambda scale, sampler=sampler: sampler(scale, 2, seeded()),
        )
    each_is_refused(
        [(n, "number of shares") for n in (0.999, -2, math.nan, 2.0**41, "2")],
        lambda shares: polya_share(2.0, shares, 1, seeded()),
    )
    logs: list[Any] = [[], [[0.0]], [math.nan, 0.0], [math.inf, 0.0], [-math.inf], np.zeros(65537)]
    each_is_refused(
        [(weights, "log weights must be") for weights in logs],
        lambda weights: categorical(weights, seeded()),
    )
