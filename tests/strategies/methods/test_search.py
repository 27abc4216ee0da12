"""Acc-T, NLL-T and ECE-T: the paper's algorithm without noise, and bounds and noise with it."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from strategy_checks import algorithm_1, assert_refused, some_shards

from fedcal.calibrators import TemperatureScaling
from fedcal.core.numerics import Floats, Integers, log_grid, softmax
from fedcal.core.shards import Shards
from fedcal.metrics import accuracy
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.search import ECET, NLLT, AccT

CLIENTS, CLASSES = 12, 4
METHODS: dict[str, type[Any]] = {"acct": AccT, "nllt": NLLT, "ecet": ECET}
methods = pytest.mark.parametrize("name", METHODS)
drawing = pytest.mark.parametrize("name", ["nllt", "ecet"])
ROWS = {"acct": 1.0, "nllt": 10.0, "ecet": 1.0}
"""What one row may change."""


federation = partial(Federation, clients=CLIENTS, classes=CLASSES)
private = partial(federation, epsilon=1.0)


def method(name: str, own: Federation | None = None, **options: Any) -> FederatedStrategy:
    made: FederatedStrategy = METHODS[name](
        own or federation(), secure_aggregation="none", **options
    )
    return made


def temperature(strategy: FederatedStrategy) -> float:
    result = strategy.result()
    assert isinstance(result, TemperatureScaling)
    return result.temperature


def run(name: str, shards: Shards, own: Federation | None = None, **options: Any) -> float:
    own = own or federation(classes=shards.classes)
    strategy = method(name, own, **options)
    run_inline(strategy, shards)
    assert len(strategy.releases) == strategy.plan.rounds
    return temperature(strategy)


def objective(name: str, z: Floats, y: Integers, t: float) -> float:
    """Of pooled rows, from the definitions in C.2."""
    p = softmax(z / t)
    confidence = p.max(axis=1)
    gap = (z.argmax(axis=1) == y) - confidence
    if name == "acct":
        return float(abs(gap.sum()))
    if name == "nllt":
        return float(np.minimum(-np.log(p[np.arange(len(y)), y]), 10.0).sum())
    bins = np.minimum((confidence * 15).astype(int), 14)
    return sum(abs(float(gap[bins == b].sum())) for b in range(15))


@methods
def test_without_privacy_it_is_algorithm_1_on_the_pooled_rows(name):
    for c, scale in ((2, 0.4), (20, 1.0), (4, 2.0)):
        shards = some_shards(c, rows=300, seed=c, scale=scale)

        def f(t: float, s: Shards = shards) -> float:
            return objective(name, s.logits, s.labels, t)

        assert run(name, shards) == algorithm_1(f, 0.5, 3.0, 5)[-1]
        for k in (1, 6):
            want, around = algorithm_1(f, 0.25, 8.0, k)[-1], {"low": 0.25, "high": 8.0}
            assert run(name, shards, iterations=k, **around) == want
            assert run(name, shards, federation(classes=c, rounds=k + 1), **around) == want


def test_acct_makes_mean_confidence_equal_accuracy():
    shards = some_shards(rows=4000)
    z, y = shards.logits, shards.labels
    for options in ({"iterations": 25}, {"search": "posterior"}):
        rounds = None if "iterations" in options else 20
        t = run("acct", shards, federation(rounds=rounds), rows_per_client=330, **options)
        close = 0.02 if options.get("search") == "posterior" else 1e-4
        assert softmax(z / t).max(axis=1).mean() == pytest.approx(
            accuracy(softmax(z), y), abs=close
        )


@drawing
def test_the_exponential_search_without_privacy_is_the_best_of_the_grid(name):
    grid = np.exp(log_grid(0.5, 3.0, 31))
    for c in (2, 4):
        shards = some_shards(c)
        each = [objective(name, shards.logits, shards.labels, t) for t in grid.tolist()]
        best = grid[int(np.argmin(each))]
        assert run(name, shards, search="exponential", points=31) == best


@methods
def test_the_laplace_scale_is_evaluations_times_sensitivity_over_epsilon(name):
    epsilon, k = (0.3, 5) if name == "acct" else (4.0, 1)
    row, nll = ROWS[name], name == "nllt"
    many = math.sqrt(CLIENTS)
    for unit, trust, options, sensitivity in (
        ("example", "central", {}, row),
        ("user", "central", {"clip": 3.5}, 3.5),
        ("user", "central", {"rows_per_client": 200.0}, 200.0 if nll else 16.0),
        ("user", "central", {"rows_per_client": 2.0}, 10.0 if nll else 2.0),
        ("example", "local", {}, many * row),
        ("user", "local", {"clip": 1.0}, 2 * many),  # another client in its place
    ):
        own = private(unit=unit, trust=trust, epsilon=epsilon)
        plan = method(name, own, iterations=k, **options).plan
        assert (plan.mechanism.name, plan.rounds, plan.delta) == ("laplace", k + 1, 0.0)
        std = math.sqrt(2) * (k + 1) * sensitivity / epsilon
        assert plan.noise_std == pytest.approx([std], rel=1e-7)


def test_a_search_asks_as_often_as_it_plans():
    for name, search, rounds in (
        *(("acct", "golden", 6), ("acct", "posterior", 3)),
        *(("nllt", "golden", 6), ("nllt", "exponential", 1)),
    ):
        plan = method(name, private(), search=search, rows_per_client=50.0).plan
        assert plan.rounds == rounds
        assert plan.mechanism.name == ("exponential" if rounds == 1 else "laplace")
        if rounds > 1:
            own = private(rounds=4)
            assert method(name, own, search=search, rows_per_client=50.0).plan.rounds == 4


def test_the_exponential_search_needs_a_trusted_server():
    options, why = {"search": "exponential", "clip": 1.0}, "'exponential' needs trust 'central'"
    table = [(name, trust, why) for name in ("nllt", "ecet") for trust in ("distributed", "local")]
    assert_refused(table, lambda name, trust: method(name, private(trust=trust), **options))
