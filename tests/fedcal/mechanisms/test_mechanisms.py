import itertools
import math
from functools import partial

import numpy as np
import pytest
from laws import ADDITIVE, follows, has_scale, probabilities
from laws import noise as noise_of
from refusals import each_is_refused, refused
from scipy import stats

from fedcal import accounting
from fedcal.core.numerics import Purpose, stream
from fedcal.mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    Noise,
    NoNoise,
    Source,
    Sum,
    Target,
    Unary,
)
from fedcal.mechanisms.choice import draw_index, unary_flip
from fedcal.secure_aggregation import Ring
from fedcal.units import Bound

LEVEL = 1e-6  # of a test that must accept: a right mechanism fails one seed in a million
DRAWS = 20_000
INTEGERS = Ring(1000, 1.0)

additive = pytest.mark.parametrize("mechanism", ADDITIVE)
sources = pytest.mark.parametrize("system", [False, True], ids=["seeded", "system"])


def rng_of(seed: int, round_number: int = 1) -> np.random.Generator:
    return stream(seed, Purpose.NOISE, round_number)


def source_of(system: bool, seed: int = 1) -> Source:
    return None if system else rng_of(seed)


# --- noise on a sum: the law --------------------------------------------------------------------


@additive
@sources
def test_noise_is_neither_two_thirds_nor_three_halves_of_its_scale(mechanism, system):
    """Each block has its own scale."""
    scales = (3.7, 20.0, 0.5, 150.0)
    noise = noise_of(mechanism, (DRAWS,) * 4, scales).draw(source_of(system))
    assert noise.dtype == np.int64
    for part, scale in zip(np.split(noise, 4), scales, strict=True):
        assert has_scale(part, mechanism, scale)
        assert not has_scale(part, mechanism, scale * 2 / 3)
        assert not has_scale(part, mechanism, scale * 3 / 2)
        assert abs(part.mean()) < 5 * part.std() / math.sqrt(len(part))


def test_seeded_noise_of_many_steps_has_its_std():
    """Which is drawn in double precision."""
    drawn = noise_of("gaussian", (DRAWS,), (1e5,)).draw(rng_of(1)) / 1e5
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > LEVEL
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(drawn * wrong, stats.norm.cdf).pvalue < LEVEL


@additive
@sources
def test_shares_add_up_to_all_and_more_of_them_to_more(mechanism, system):
    shares, scale = 4, 8.0
    noise = noise_of(mechanism, (DRAWS,), (scale,), shares)
    source = source_of(system)
    drawn = [noise.draw(source) for _ in range(2 * shares)]
    total = np.sum(drawn[:shares], axis=0)
    assert has_scale(total, mechanism, scale)
    for wrong in (2 / 3, 3 / 2):
        assert not has_scale(total, mechanism, wrong * scale)
    too_few = np.sum(drawn[: shares - 1], axis=0)
    assert not has_scale(too_few, mechanism, scale)
    assert too_few.var() < 0.85 * total.var()
    assert np.sum(drawn, axis=0).var() / total.var() == pytest.approx(2.0, rel=0.15)
    assert drawn[0].var() * shares / total.var() == pytest.approx(1.0, rel=0.15)


LAPLACE = [("joint", 1, 1.0), ("per_block", 1, 2.0), ("per_value", 1, 5.0)]
LAPLACE += [("joint", 2, 5**0.5), ("per_block", 2, 2**0.5 + 3**0.5), ("per_value", 2, 5.0)]


def test_the_scale_is_norm_times_sensitivity():
    for rule, order, factor in LAPLACE:
        scale = Laplace(0.25).scale(Bound((2, 3), (4.0, 0.5), rule, order), 1)
        np.testing.assert_allclose(scale, np.array([4, 0.5]) * 4 * factor, rtol=1e-15)
    for rule, factor in (("joint", 1.0), ("per_block", math.sqrt(2)), ("per_value", math.sqrt(5))):
        scale = Gaussian(multiplier=3.0).scale(Bound((2, 3), (4.0, 0.5), rule), 1)
        np.testing.assert_allclose(scale, np.array([4, 0.5]) * 3 * factor, rtol=1e-15)


# --- why discrete Gaussian noise has the continuous one's guarantee ----------------------------


def discrete_delta(epsilon: float, std: float, shift: int) -> float:
    """Hockey-stick divergence of a discrete Gaussian from itself, shifted: exact sums."""
    far = math.ceil(40 * std + shift)
    k = np.arange(-far, far + 1)
    p, q = (probabilities("gaussian", std, k - s) for s in (0, shift))
    return float(max(np.maximum(p - math.exp(epsilon) * q, 0).sum(), 0.0))


@pytest.mark.parametrize("std", [0.5, 2.0, 7.3, 60.0])
def test_three_steps_of_smoothing_pay_for_the_grid(std):
    for epsilon, shift in itertools.product((0.05, 0.5, 1.0, 4.0), (1, 2, 5, 40)):
        continuous = accounting.gaussian_delta(epsilon, std / shift)
        smooth = discrete_delta(epsilon, Gaussian.steps(std), shift)
        assert smooth <= continuous * (1 + 1e-9) + 1e-14
    # without them a coarse grid costs more, or the above could not fail
    assert discrete_delta(0.05, 0.5, 1) > accounting.gaussian_delta(0.05, 0.5)


# --- the exponential mechanism ----------------------------------------------------------------

SCORES = np.array([0.0, 1.0, -1.0, 2.5, -4.0, 7.0, 30.0])


def exact_probabilities(scores: np.ndarray, epsilon: float, norm: float) -> np.ndarray:
    """Exact probabilities, exp(-eps |S| / (2 C)) normalised."""
    logits = [-epsilon * abs(s) / (2 * norm) for s in scores.tolist()]
    top = max(logits)
    weights = [math.exp(v - top) for v in logits]
    return np.array([w / math.fsum(weights) for w in weights])


@sources
@pytest.mark.parametrize(("epsilon", "norm"), [(1.0, 1.0), (4.0, 2.5)])
def test_draws_follow_the_distribution_and_neither_two_thirds_nor_three_halves_of_epsilon(
    epsilon, norm, system
):
    source, number = source_of(system), DRAWS // 6
    drawn = [draw_index(SCORES, epsilon, norm, source) for _ in range(number)]
    counts = np.bincount(drawn, minlength=len(SCORES))
    assert follows(counts, exact_probabilities(SCORES, epsilon, norm))
    assert not follows(counts, exact_probabilities(SCORES, epsilon * 2 / 3, norm))
    assert not follows(counts, exact_probabilities(SCORES, epsilon * 3 / 2, norm))


def test_a_draw_among_blocks_counts_the_diameter():
    """P(i) ~ exp(-eps sum |S_i| / (2 C)), C doubled where a neighbour may replace a client."""
    bound, rng, draws = Bound((2, 1, 2), (2.0,) * 3, "per_block", 1), rng_of(1), 2000
    for diameter in (1, 2):
        of = Sum(INTEGERS, bound, diameter, 10, np.zeros(0), 1.0)
        sums = np.array([0.0, 0.0, 4.0, 2.0, -2.0])
        draw = partial(Exponential(2.0).release, sums, of, lambda rng=rng: rng)
        drawn = [draw()[0][0] for _ in range(draws)]
        for counted in (1, 2):
            p = 1 / (1 + 2 * math.exp(-2.0 * 4 / (2 * 2.0 * counted)))
            assert (stats.binomtest(drawn.count(0), draws, p).pvalue > LEVEL) == (
                counted == diameter
            )


# --- optimal unary encoding ---------------------------------------------------------------------


def coin(flip: float, cells: int) -> Noise:
    return Noise(Unary, (cells,), (flip,))


def encoded(cell: int | None, cells: int, epsilon: float, times: int, system: bool) -> np.ndarray:
    """Bits that are sent for an answer in `cell` (None: a client without rows), (times, cells)."""
    words = np.zeros(cells, np.uint64)
    if cell is not None:
        words[cell] = 1
    source, flip = source_of(system), unary_flip(epsilon)
    return np.array(
        [Unary.client(words, INTEGERS, coin(flip, len(words)), source) for _ in range(times)]
    )


@sources
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_a_one_stays_half_of_the_time_and_a_zero_turns_as_rarely_as_epsilon_says(epsilon, system):
    times, cells = 2000, 5
    sent = encoded(2, cells, epsilon, times, system)
    assert set(np.unique(sent)) == {0, 1}
    ones = int(sent[:, 2].sum())
    turned = int(sent.sum()) - ones
    flip = 1 / (1 + math.exp(epsilon))
    assert stats.binomtest(ones, times, 0.5).pvalue > LEVEL
    assert stats.binomtest(turned, times * (cells - 1), flip).pvalue > LEVEL
    for wrong in (2 / 3, 3 / 2):
        assert stats.binomtest(ones, times, 0.5 * wrong).pvalue < LEVEL
        assert stats.binomtest(turned, times * (cells - 1), flip * wrong).pvalue < LEVEL
    everybody = encoded(None, cells, epsilon, times, system)
    assert stats.binomtest(int(everybody.sum()), times * cells, flip).pvalue > LEVEL


def test_an_answer_of_more_than_one_1_or_a_useless_coin_is_refused():
    answers = ((1, 1, 0), (2, 0, 0), (0, 2**64 - 1), (1, 0, 5))
    each_is_refused(
        [(words, "at most one 1") for words in answers],
        lambda words: Unary.client(np.array(words, np.uint64), INTEGERS, coin(0.2, 3), rng_of(1)),
    )
    each_is_refused(
        [(("unary", (3,), (0.5,)), "probability < 1/2"), (("unary", (3,), (0.1,), 3), "3 shares")],
        lambda fields: noise_of(*fields),
    )


def test_no_noise_keeps_no_finite_epsilon():
    assert NoNoise.calibrate(Target(math.inf, 0.0, 1)) == NoNoise()
    refused("no finite epsilon", NoNoise.calibrate, Target(1.0, 0.0, 1))


def test_counts_are_unbiased_and_have_the_std_of_an_empty_cell():
    """The expected sum of encoded answers is released exactly: 1/2 of each 1, and flipped zeros."""
    clients, epsilon = 60, 1.5
    flip = unary_flip(epsilon)
    unary, bound = Unary(epsilon), Bound((3,), (2.0,))
    of = Sum(INTEGERS, bound, 1, clients, unary.std(np.zeros(0), clients, bound), 1.0)
    answers = np.array([45, 5, 0])  # nobody is in the last cell, some have no rows at all
    values, std = unary.release(0.5 * answers + flip * (clients - answers), of, lambda: None)
    np.testing.assert_allclose(values, answers, atol=1e-9)
    np.testing.assert_allclose(std, math.sqrt(clients * flip * (1 - flip)) / (0.5 - flip))
