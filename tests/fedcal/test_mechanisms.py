from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcal.privacy import mechanisms
from fedcal.privacy.bounding import Bound
from fedcal.secure_aggregation import Ring
from fedcal.streams import Purpose, stream

LEVEL = 1e-6  # of a test that must accept: a right mechanism fails one seed in a million
DRAWS = 20_000


def rng_of(seed: int, round_number: int = 1) -> np.random.Generator:
    return stream(seed, Purpose.NOISE, round_number)


# --- Gaussian noise ---------------------------------------------------------------------------


def has_std(noise: np.ndarray, std: float) -> bool:
    """Whether a zero-mean normal sample may have this std: sum (x / std)^2 ~ chi^2(n)."""
    return within(float(((noise / std) ** 2).sum()), stats.chi2(len(noise)))


def within(value: float, distribution: Any) -> bool:
    return bool(distribution.ppf(LEVEL / 2) < value < distribution.isf(LEVEL / 2))


def noise_of(ring: Ring, std: np.ndarray, seed: int = 1, total: int = 0) -> np.ndarray:
    words = np.full(len(std), total, np.uint64)
    return ring.decode(mechanisms.gaussian(words, ring, std, rng_of(seed)) - words)


@pytest.mark.parametrize("std", [0.37, 12.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_noise_has_the_std_and_neither_two_thirds_nor_three_halves_of_it(
    std: float, seed: int
) -> None:
    noise = noise_of(Ring(10, 2.0**-16), np.full(DRAWS, std), seed)
    assert has_std(noise, std)
    assert not has_std(noise, std * 2 / 3)
    assert not has_std(noise, std * 3 / 2)
    assert abs(noise.mean()) < 5 * std / math.sqrt(DRAWS)
    assert stats.kstest(noise / std, "norm").pvalue > LEVEL


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_a_mechanism_of_the_wrong_scale_is_noticed(wrong: float) -> None:
    noise = noise_of(Ring(10, 2.0**-16), np.full(DRAWS, wrong))
    assert not has_std(noise, 1.0)
    assert has_std(noise, wrong)


def test_each_block_has_noise_in_proportion_to_its_norm() -> None:
    bound = Bound((DRAWS, 2 * DRAWS, DRAWS), (2.0, 10.0, 0.5), "per_block")
    std = mechanisms.gaussian_std(bound, 1.7)
    noise = noise_of(Ring(10, 2.0**-16), std)
    for part, norm in zip(np.split(noise, [DRAWS, 3 * DRAWS]), bound.norms, strict=True):
        want = norm * math.sqrt(3) * 1.7
        assert has_std(part, want)
        assert not has_std(part, want * 2 / 3)
        assert not has_std(part, want * 3 / 2)


@pytest.mark.parametrize(
    ("rule", "factor"), [("joint", 1.0), ("per_block", math.sqrt(2)), ("per_value", math.sqrt(5))]
)
def test_std_is_norm_times_sensitivity_times_multiplier(rule: Any, factor: float) -> None:
    std = mechanisms.gaussian_std(Bound((2, 3), (4.0, 0.5), rule), 3.0)
    np.testing.assert_allclose(std, np.array([4, 4, 0.5, 0.5, 0.5]) * 3 * factor, rtol=1e-15)


def test_noise_lies_on_the_grid_and_is_added_to_the_sum_itself() -> None:
    ring = Ring(3, 2.0**-4)
    std = np.full(1000, 0.3)
    noise = noise_of(ring, std)
    assert (noise % ring.grid == 0).all()
    assert len(set(noise)) > 10
    total = ring.encode(np.full(1000, -2.5))
    released = ring.decode(mechanisms.gaussian(total, ring, std, rng_of(1)))
    np.testing.assert_array_equal(released, noise - 2.5)


def test_coordinates_rounds_and_seeds_have_noise_of_their_own() -> None:
    ring, std = Ring(3, 2.0**-20), np.ones(DRAWS)
    zero = np.zeros(DRAWS, np.uint64)
    draws = [
        ring.decode(mechanisms.gaussian(zero, ring, std, rng_of(seed, r)))
        for seed, r in ((1, 1), (1, 2), (2, 1), (1, 2))
    ]
    np.testing.assert_array_equal(draws[1], draws[3])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(draws[a], draws[b])[0, 1]) < 5 / math.sqrt(DRAWS)
    assert abs(np.corrcoef(draws[0][1:], draws[0][:-1])[0, 1]) < 5 / math.sqrt(DRAWS)


# --- the exponential mechanism ----------------------------------------------------------------

SCORES = np.array([0.0, 1.0, -1.0, 2.5, -4.0, 7.0, 30.0])


def law(scores: np.ndarray, epsilon: float, norm: float) -> np.ndarray:
    """Exact probabilities, exp(-eps |S| / (2 C)) normalised."""
    logits = [-epsilon * abs(s) / (2 * norm) for s in scores.tolist()]
    top = max(logits)
    weights = [math.exp(v - top) for v in logits]
    return np.array([w / math.fsum(weights) for w in weights])


def follows(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Pearson's chi-square, rare outcomes (below 5 expected) lumped into the likeliest."""
    expected = counts.sum() * probabilities
    rare = expected < 5
    seen, want = counts[~rare].astype(float), expected[~rare]
    seen[want.argmax()] += counts[rare].sum()
    want[want.argmax()] += expected[rare].sum()
    return bool(stats.chi2(len(want) - 1).sf(((seen - want) ** 2 / want).sum()) > LEVEL)


def frequencies(epsilon: float, norm: float, seed: int = 1) -> np.ndarray:
    rng = rng_of(seed)
    drawn = [mechanisms.exponential(SCORES, epsilon, norm, rng) for _ in range(DRAWS)]
    return np.bincount(drawn, minlength=len(SCORES))


@pytest.mark.parametrize(("epsilon", "norm"), [(1.0, 1.0), (4.0, 2.5), (0.5, 0.1)])
def test_draws_follow_the_law_and_neither_two_thirds_nor_three_halves_of_epsilon(
    epsilon: float, norm: float
) -> None:
    counts = frequencies(epsilon, norm)
    assert follows(counts, law(SCORES, epsilon, norm))
    assert not follows(counts, law(SCORES, epsilon * 2 / 3, norm))
    assert not follows(counts, law(SCORES, epsilon * 3 / 2, norm))


class _Given:
    """A generator whose next uniform number is known."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def random(self) -> float:
        return self.uniform


def implemented_law(scores: np.ndarray, epsilon: float, norm: float) -> np.ndarray:
    """Probabilities of the code itself: how many of the 2**53 uniform numbers give each index."""

    def index(m: int) -> int:
        return mechanisms.exponential(scores, epsilon, norm, _Given(m * 2.0**-53))  # type: ignore[arg-type]

    cuts = [0]
    for i in range(len(scores) - 1):
        low, high = cuts[-1], 2**53  # the first m whose index is above i
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if index(middle) > i else (middle + 1, high)
        cuts.append(low)
    return np.diff([*cuts, 2**53]) / 2**53


@pytest.mark.parametrize(("epsilon", "norm"), [(1.0, 1.0), (3.0, 0.2), (0.1, 50.0)])
def test_the_code_has_exactly_the_law(epsilon: float, norm: float) -> None:
    np.testing.assert_allclose(
        implemented_law(SCORES, epsilon, norm), law(SCORES, epsilon, norm), rtol=0, atol=1e-14
    )


def test_huge_scores_neither_overflow_nor_leave_the_range() -> None:
    rng = rng_of(1)
    assert mechanisms.exponential(np.array([1e300, -1e308, 0.0]), 1.0, 1.0, rng) == 2
    assert mechanisms.exponential(np.array([1e300, 1e15, -1e300]), 1.0, 1e-3, rng) == 1
    drawn = {mechanisms.exponential(np.full(3, -1e200), 1.0, 1.0, rng) for _ in range(200)}
    assert drawn == {0, 1, 2}  # equal scores: uniform, however huge
    last = _Given(1 - 2.0**-53)
    scores = np.array([0.0, 1.0, 1e9])  # the last one's weight underflows to 0
    assert mechanisms.exponential(scores, 1.0, 1.0, last) == 1  # type: ignore[arg-type]
    first = _Given(0.0)  # ... and the first one's must not win by being first
    assert mechanisms.exponential(scores[::-1], 1.0, 1.0, first) == 1  # type: ignore[arg-type]
