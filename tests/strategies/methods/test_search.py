"""Acc-T, NLL-T, ECE-T and FedOneShot: the paper's search, its noisy twin, and their objectives."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from strategy_checks import algorithm_1, assert_refused, some_shards

from fedcal.core.fitting import log_grid
from fedcal.core.numerics import Floats, Integers, softmax
from fedcal.core.shards import Shards
from fedcal.metrics import accuracy
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.search import (
    FedOneShot,
    GoldenSection,
    PosteriorBisection,
    Search,
    root_posterior,
)

LOW, HIGH = 0.5, 3.0
METHODS = ("acct", "nllt", "ecet")
federation = partial(Federation, clients=12, classes=4)


def temperature(name: str, shards: Shards, rounds: int | None = None, **options: Any) -> float:
    """Return the temperature found after as many releases as were planned."""
    method: Callable[..., Any] = STRATEGIES[name]
    strategy = method(federation(classes=shards.classes, rounds=rounds), **options)
    run_inline(strategy, shards)
    assert len(strategy.releases) == strategy.plan.rounds
    return float(strategy.result().temperature)


def objective(name: str, z: Floats, y: Integers, t: float) -> float:
    """Return the objective on pooled rows, from the definitions in C.2."""
    p = softmax(z / t)
    confidence = p.max(axis=1)
    gap = (z.argmax(axis=1) == y) - confidence
    if name == "acct":
        return float(abs(gap.sum()))
    if name == "nllt":
        return float(np.minimum(-np.log(p[np.arange(len(y)), y]), 10.0).sum())
    bins = np.minimum((confidence * 15).astype(int), 14)
    return sum(abs(float(gap[bins == b].sum())) for b in range(15))


@pytest.mark.parametrize("name", METHODS)
def test_without_privacy_it_is_algorithm_1_on_the_pooled_rows(name):
    for c, scale in ((2, 0.4), (20, 1.0), (4, 2.0)):
        shards = some_shards(c, rows=300, seed=c, scale=scale)

        def f(t: float, s: Shards = shards) -> float:
            return objective(name, s.logits, s.labels, t)

        assert temperature(name, shards) == algorithm_1(f, 0.5, 3.0, 5)[-1]
        for k in (1, 6):
            want, around = algorithm_1(f, 0.25, 8.0, k)[-1], {"low": 0.25, "high": 8.0}
            assert temperature(name, shards, iterations=k, **around) == want
            assert temperature(name, shards, k + 1, **around) == want


def test_posterior_search_makes_mean_confidence_equal_accuracy():
    shards = some_shards(rows=4000)
    z, y = shards.logits, shards.labels
    t = temperature("acct", shards, 20, search="posterior", rows_per_client=330)
    assert softmax(z / t).max(axis=1).mean() == pytest.approx(accuracy(softmax(z), y), abs=0.02)
    far = some_shards(scale=10.0)  # its root is no temperature in the range of the search
    assert temperature("acct", far, 6, search="posterior", rows_per_client=50) > 2.99


@pytest.mark.parametrize("name", ["nllt", "ecet"])
def test_the_exponential_search_without_privacy_is_the_best_of_the_grid(name):
    grid, shards = np.exp(log_grid(0.5, 3.0, 31)), some_shards()
    each = [objective(name, shards.logits, shards.labels, t) for t in grid.tolist()]
    best = grid[int(np.argmin(each))]
    assert temperature(name, shards, search="exponential", points=31) == best


@pytest.mark.parametrize(("name", "norm"), [("nllt", 10.0), ("ecet", 1.0)])
def test_the_exponential_search_draws_a_temperature_by_its_objective(name, norm):
    """P(T) ~ exp(-eps objective(T) / (2 C)), with C what a row adds."""
    grid, shards = np.exp(log_grid(0.5, 3.0, 5)), some_shards(rows=60)
    each = [objective(name, shards.logits, shards.labels, t) for t in grid.tolist()]
    likely = np.exp(-(np.array(each) - min(each)) / (2 * norm))
    method: Callable[..., Any] = STRATEGIES[name]
    count = np.zeros(5)
    for seed in range(300):
        f = federation(epsilon=1.0, unit="example", seed=seed)
        strategy = method(f, search="auto", points=5)
        run_inline(strategy, shards)
        count[np.flatnonzero(grid == strategy.result().temperature)] += 1
    assert chisquare(count, 300 * likely / likely.sum()).pvalue > 1e-4


def test_the_exponential_search_asks_a_trusted_server_once():
    def make(name: str, trust: str, **more: Any) -> object:
        method: Callable[..., Any] = STRATEGIES[name]
        return method(federation(epsilon=1.0, trust=trust), clip=1.0, **more)

    why, draw = "'exponential' needs trust 'central'", {"search": "exponential"}
    refused = [("nllt", "distributed", why), ("ecet", "local", why)]
    assert_refused(refused, partial(make, **draw))
    assert_refused([("nllt", "central", "asks once")], partial(make, iterations=3, **draw))
    assert_refused([("ecet", "central", "one temperature at a time")], partial(make, points=9))


# --- searches by themselves -----------------------------------------------------------------------


def run(search: Search, f: Callable[[float], float], std: float = 0.0) -> list[float]:
    """Return the points where the one search evaluated f."""
    asked = []
    while (t := search.next()) is not None:
        assert search.next() == t  # asking twice changes nothing
        search.tell(t, f(float(t[0])), std)
        asked.append(float(t[0]))
    return asked


def test_equal_values_move_right_as_line_5_says():
    search = GoldenSection(LOW, HIGH, 30)
    run(search, lambda t: 0.0)
    assert search.answer() == pytest.approx([HIGH], abs=1e-5)


def errors_of(make: Callable[[], Search], scale: float) -> float:
    """Return the root mean square error in log t over 100 noisy searches."""
    off = []
    for seed in range(100):
        search, rng = make(), np.random.default_rng(seed)

        def f(t: float, rng: Any = rng) -> float:
            return float(700.0 * math.log(t / 1.2) + rng.laplace(0, scale))

        falls = not isinstance(search, GoldenSection)
        run(search, f if falls else lambda t, f=f: abs(f(t)), 2**0.5 * scale)
        off.append(math.log(float(search.answer()[0]) / 1.2))
    return float(np.sqrt(np.mean(np.square(off))))


def test_with_noise_posterior_beats_golden_section():
    scale, slope = 60.0, (100.0, 2500.0)
    golden = errors_of(partial(GoldenSection, LOW, HIGH, 5), scale)
    assert errors_of(partial(PosteriorBisection, LOW, HIGH, 6, slope), scale) < 0.6 * golden
    # three evaluations of the same budget
    assert errors_of(partial(PosteriorBisection, LOW, HIGH, 3, slope), scale / 2) < 0.5 * golden


@pytest.mark.parametrize("laplace", [False, True])
def test_a_posterior_is_right_as_often_as_it_says(laplace):
    """With noise of the stated std the truth lies within the central 80 % about as often."""
    roots, asked = np.linspace(-1.4, 2.1, 141), np.linspace(-1.4, 2.1, 8)
    rng, inside = np.random.default_rng(0), []
    for _ in range(100):
        root = rng.uniform(-1.0, 1.7)
        noise = rng.laplace(0, 30 / 2**0.5, 8) if laplace else rng.normal(0, 30, 8)
        values = 100 * np.tanh((root - asked) / 0.8) + noise
        cumulative = np.cumsum(root_posterior(asked, values, 30.0, roots, laplace))
        inside.append(0.1 < float(np.interp(root, roots, cumulative)) < 0.9)
    assert 0.7 < np.mean(inside) < 0.97


# --- one question for all temperatures ------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # T = 1/2, 1, 2, 4; the score crosses zero three quarters of the way from 1 to 2
        ([9.0, 3.0, -1.0, -2.0], 2**0.75),
        ([0.0, 0.0, 0.0, 0.0], 1.0),  # no rows: the model is left alone
        ([4.0, 3.0, 2.0, 1.0], 4.0),  # the root lies beyond the grid
        ([-1.0, -2.0, -3.0, -4.0], 0.5),
        ([4.0, 0.0, -3.0, -4.0], 1.0),
        ([3.0], 4.0),  # with privacy: the index of the drawn point
        ([0.0], 0.5),
    ],
)
def test_one_shot_interpolates_the_root_or_takes_the_drawn_point(values, expected):
    own = federation(epsilon=1.0 if len(values) == 1 else math.inf)
    strategy = FedOneShot(own, low=0.5, high=4.0, points=4, rows_per_client=50)
    strategy.update(Release(1, "any", np.array(values), np.zeros(len(values))))
    assert strategy.result().temperature == pytest.approx(expected, rel=1e-14)
