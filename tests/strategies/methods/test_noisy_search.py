"""Searches against Algorithm 1 in plain loops, and noise of known size."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from strategy_checks import algorithm_1

from fedcal.strategies.methods.search import GoldenSection, PosteriorBisection, Search

LOW, HIGH = 0.5, 3.0


def run(search: Search, f: Callable[[float], float], std: float = 0.0) -> list[float]:
    """Where the one search evaluated f."""
    asked = []
    while (t := search.next()) is not None:
        assert search.next() == t  # asking twice changes nothing
        search.tell(t, f(float(t[0])), std)
        asked.append(float(t[0]))
    return asked


def answer(search: Search) -> float:
    """Where the one search ended."""
    (t,) = search.answer()
    return float(t)


def line(root: float, slope: float = 700.0) -> Callable[[float], float]:
    return lambda t: slope * math.log(t / root)


def size(f: Callable[[float], float]) -> Callable[[float], float]:
    return lambda t: abs(f(t))


@pytest.mark.parametrize("iterations", [1, 2, 5, 9])
def test_golden_section_is_algorithm_1(iterations):
    roots = [0.1, 0.5, 0.83, 1.0, 1.7320508, 2.46, 3.0, 9.0]
    makes = [lambda root=root: line(root) for root in roots]
    makes += [lambda seed=seed: noisy(1.8, 400.0, seed) for seed in range(20)]
    for f in makes:
        search = GoldenSection(LOW, HIGH, iterations)
        asked = run(search, size(f()))
        assert [*asked, answer(search)] == algorithm_1(f(), LOW, HIGH, iterations)
        assert len(set(asked)) == len(asked) == iterations + 1


def noisy(root: float, scale: float, seed: int) -> Callable[[float], float]:
    rng = np.random.default_rng(seed)
    return lambda t: float(line(root)(t) + rng.laplace(0, scale))


def test_equal_values_move_right_as_line_5_says():
    search = GoldenSection(LOW, HIGH, 30)
    run(search, lambda t: 0.0)
    assert answer(search) == pytest.approx(HIGH, abs=1e-5)


def errors_of(make: Callable[[], Search], scale: float, root: float) -> float:
    """Root mean square error in log t over 100 noisy searches."""
    off = []
    for seed in range(100):
        search, f = make(), noisy(root, scale, seed)
        run(search, size(f) if isinstance(search, GoldenSection) else f, 2**0.5 * scale)
        off.append(math.log(answer(search) / root))
    return float(np.sqrt(np.mean(np.square(off))))


@pytest.mark.parametrize("root", [1.2, 2.0])
def test_with_noise_posterior_beats_golden_section(root):
    scale, slope = 60.0, (100.0, 2500.0)
    golden = errors_of(partial(GoldenSection, LOW, HIGH, 5), scale, root)
    assert errors_of(partial(PosteriorBisection, LOW, HIGH, 6, slope), scale, root) < 0.6 * golden
    fewer = scale / 2  # three evaluations of the same budget
    assert errors_of(partial(PosteriorBisection, LOW, HIGH, 3, slope), fewer, root) < 0.5 * golden


MAKES = [
    (partial(GoldenSection, LOW, HIGH, 5), 6),
    (partial(PosteriorBisection, LOW, HIGH, 3, (100.0, 2500.0)), 3),
    (partial(PosteriorBisection, LOW, HIGH, 3, (100.0, 2500.0), tailed=False), 3),
]


@pytest.mark.parametrize(("make", "evaluations"), MAKES)
def test_searches_side_by_side_are_each_search_bit_for_bit(make, evaluations):
    values = np.random.default_rng(0).normal(0.0, 200.0, (evaluations, 50))
    values[:, 0] = 1.0  # ties
    together, asked = make(searches=50), []
    for row in values:
        t = together.next()
        assert t is not None
        asked.append(t)
        together.tell(t, row, 100.0)
    assert together.next() is None
    for k, (own, end) in enumerate(zip(np.transpose(asked), together.answer(), strict=True)):
        told = iter(values[:, k].tolist())
        alone = make()
        assert run(alone, lambda t, told=told: next(told), 100.0) == own.tolist()
        assert answer(alone) == end
