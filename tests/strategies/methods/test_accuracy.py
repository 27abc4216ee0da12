"""Accuracy, asked alone."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedcal.clients.answers import answer
from fedcal.core.numerics import Floats
from fedcal.core.shards import Shards
from fedcal.datasets import load
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.mechanisms.choice import scores_of
from fedcal.partition import dirichlet, iid
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import FedAccuracy
from fedcal.strategies.methods.evaluate import POINTS, SingleMetric, draw_std


@cache
def data(name: str) -> Any:
    return load(name)


def dealt(name: str, clients: int, partition: str, seed: int) -> Shards:
    rows, rng = data(name), np.random.default_rng(seed)
    if partition == "iid":
        owner = iid(rows.labels, clients, rng)
    else:
        owner = dirichlet(rows.labels, clients, float(partition.removeprefix("dirichlet:")), rng)
    return Shards.from_owner(rows.logits, rows.labels, owner, clients)


def exact(shards: Shards) -> float:
    """What the pooled rows show."""
    return float((shards.logits.argmax(axis=1) == shards.labels).mean())


def found(shards: Shards, seed: int = 0, **fields: Any) -> SingleMetric:
    known = {"epsilon": 1.0, "delta": 1e-5, **fields}
    federation = Federation(clients=shards.clients, classes=shards.classes, seed=seed, **known)
    rows = len(shards.labels) / shards.clients
    strategy = FedAccuracy(federation, rows_per_client=rows, secure_aggregation="none")
    run_inline(strategy, shards)
    return strategy.result()


@pytest.mark.parametrize("of", ["imdb-binary", "resnet110-cifar10"])
def test_without_privacy_the_pooled_rows_value_comes_out(of):
    shards = dealt(of, 100, "dirichlet:0.1", 0)
    value = found(shards, epsilon=math.inf, delta=0.0, trust="secagg").estimate.value
    assert value == pytest.approx(exact(shards), abs=1e-12)


def test_the_error_is_what_is_said():
    """Root mean square error at user-level epsilon 1, 100 clients: .50 points at most."""
    missed, inside = [], []
    for seed in range(8):
        shards = dealt("resnet110-cifar10", 100, "dirichlet:1", seed)
        estimate, truth = found(shards, seed).estimate, exact(shards)
        missed.append(estimate.value - truth)
        inside.append(estimate.low <= truth <= estimate.high)
    assert np.sqrt(np.mean(np.square(missed))) < 0.005
    assert np.mean(inside) >= 0.75


def test_the_draw_keeps_epsilon_exactly():
    """Probabilities of all candidates, with and without the client that moves them most."""
    epsilon, clients = 1.0, 6
    strategy = FedAccuracy(
        Federation(clients=clients, classes=3, epsilon=epsilon), rows_per_client=20.0
    )
    asked = strategy.open_round(1)
    rng = np.random.default_rng(0)
    labels, owner = rng.integers(0, 3, 120), np.arange(120) % clients
    logits = np.eye(3)[np.where(rng.random(120) < 0.7, labels, (labels + 1) % 3)] * 3
    labels[owner == 0] = (logits[owner == 0].argmax(axis=1) + 1) % 3  # all of its rows are wrong
    ring, bound = asked.request.ring, asked.request.bound

    def log_probabilities(keep: Any) -> Floats:
        shards = Shards.from_owner(logits[keep], labels[keep], owner[keep], clients)
        total = ring.decode(answer(shards, asked.request).sum(axis=0, dtype=np.uint64))
        weights = -scores_of(total, bound) * epsilon / (2 * max(bound.norms))
        return weights - np.log(np.exp(weights - weights.max()).sum()) - weights.max()

    ratio = np.abs(log_probabilities(owner >= 0) - log_probabilities(owner != 0)).max()
    assert 0.5 * epsilon < ratio <= epsilon


def test_the_noise_of_a_drawn_mean_is_that_of_the_draw():
    """Of 1,000 rows the candidate a costs 1,000 |a - mean|, in units of 2 C / epsilon."""
    clip, rows, epsilon = 3.0, 1000.0, 2.0
    at = np.linspace(0.0, 1.0, POINTS)
    weight = np.exp(-epsilon * rows * abs(at - 0.4) / (2 * clip))
    std = math.sqrt(float(weight @ (at - 0.4) ** 2 / weight.sum()))
    assert draw_std(clip, 1, epsilon, rows) == pytest.approx(std, rel=0.02)
    assert draw_std(clip, 2, epsilon, rows) == pytest.approx(2 * draw_std(clip, 1, epsilon, rows))


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_an_interval_is_of_the_noise_and_of_rows_drawn_at_random(rate):
    """50 clients of 20 rows at epsilon 2: clipped to 0.7 sqrt(20), and 1,000 rows in all."""
    shards, rows = dealt("imdb-binary", 50, "iid", 0), 20.0
    federation = Federation(clients=50, classes=2, epsilon=2.0, sampling_rate=rate)
    accuracy = FedAccuracy(federation, rows_per_client=rows, secure_aggregation="none")
    run_inline(accuracy, shards)
    found = accuracy.result().estimate
    all_rows = 1000 * rate  # of the clients that are asked
    alone = accuracy.plan.mechanism.epsilon  # above 2 where sampling amplifies
    assert found.noise == pytest.approx(math.sqrt(8) * 0.7 * math.sqrt(rows) / (alone * all_rows))
    assert found.sampling == pytest.approx(math.sqrt(found.value * (1 - found.value) / all_rows))
    # Laplace's .95 quantile is ln 20 / sqrt 2 standard deviations
    half = math.hypot(math.log(20) / math.sqrt(2) * found.noise, 1.95996 * found.sampling)
    assert found.high - found.value == pytest.approx(half, rel=1e-4)
    assert found.value - found.low == pytest.approx(half, rel=1e-4)
