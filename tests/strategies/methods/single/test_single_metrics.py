"""Accuracy, AUC and the KS calibration error, each asked alone."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from strategy_checks import assert_refused

from fedcal.clients.answers import answer
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.datasets import load
from fedcal.evaluation.single import SingleMetric
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.mechanisms.exponential import scores_of
from fedcal.metrics.buckets import scored
from fedcal.partition import dirichlet, iid
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import STRATEGIES, FedAccuracy
from fedcal.strategies.methods.single.mean_search import POINTS, draw_std

NAMES = ("evaluate-accuracy", "evaluate-auc", "evaluate-ks")


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


def exact(name: str, shards: Shards) -> float:
    """What the pooled rows show."""
    kind = "positive" if shards.classes == 2 else "confidence"
    score, outcome = (x[:, 0] for x in scored(shards.probs, shards.labels, kind))
    if name == "evaluate-accuracy":
        return float((shards.logits.argmax(axis=1) == shards.labels).mean())
    if name == "evaluate-auc":
        return float(roc_auc_score(outcome, score))
    gaps = np.cumsum((outcome - score)[np.argsort(score, kind="stable")])
    return float(np.abs(gaps).max() / len(score))


def found(name: str, shards: Shards, seed: int = 0, **fields: Any) -> SingleMetric:
    known = {"epsilon": 1.0, "delta": 1e-5, **fields}
    federation = Federation(clients=shards.clients, classes=shards.classes, seed=seed, **known)
    rows = len(shards.labels) / shards.clients
    strategy = STRATEGIES[name](federation, rows_per_client=rows, secure_aggregation="none")
    result = run_inline(strategy, shards)
    assert isinstance(result, SingleMetric)
    return result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("of", ["imdb-binary", "resnet110-cifar10"])
def test_without_privacy_the_pooled_rows_value_comes_out(name, of):
    near = {"evaluate-accuracy": 1e-12, "evaluate-auc": 0.004, "evaluate-ks": 0.001}[name]
    shards = dealt(of, 100, "dirichlet:0.1", 0)
    none = {"epsilon": math.inf, "delta": 0.0, "trust": "secagg"}
    value = found(name, shards, **none).estimate.value
    assert value == pytest.approx(exact(name, shards), abs=near)


CASES = [
    ("evaluate-accuracy", "resnet110-cifar10", 100, "dirichlet:1", 0.005),
    ("evaluate-auc", "imdb-binary", 100, "iid", 0.025),
    ("evaluate-auc", "imdb-binary", 1000, "dirichlet:0.1", 0.012),
    ("evaluate-ks", "game-forecasts", 1000, "dirichlet:0.1", 0.01),
]
"""Root mean square error of issue and docs at user-level epsilon = 1."""


@pytest.mark.parametrize(("name", "of", "clients", "partition", "most"), CASES)
def test_the_error_is_what_is_said(name, of, clients, partition, most):
    missed, inside = [], []
    for seed in range(8):
        shards = dealt(of, clients, partition, seed)
        estimate, truth = found(name, shards, seed).estimate, exact(name, shards)
        missed.append(estimate.value - truth)
        inside.append(estimate.low <= truth <= estimate.high)
    assert np.sqrt(np.mean(np.square(missed))) < most
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
    alone = accuracy.plan.epsilon_per_release  # above 2 where sampling amplifies
    assert found.noise == pytest.approx(math.sqrt(8) * 0.7 * math.sqrt(rows) / (alone * all_rows))
    assert found.sampling == pytest.approx(math.sqrt(found.value * (1 - found.value) / all_rows))
    # Laplace's .95 quantile is ln 20 / sqrt 2 standard deviations
    half = math.hypot(math.log(20) / math.sqrt(2) * found.noise, 1.95996 * found.sampling)
    assert found.high - found.value == pytest.approx(half, rel=1e-4)
    assert found.value - found.low == pytest.approx(half, rel=1e-4)
    ks = STRATEGIES["evaluate-ks"](
        replace(federation, delta=0.0), rows_per_client=rows, secure_aggregation="none"
    )
    run_inline(ks, shards)
    found = ks.result().estimate  # 15 counts as they are: the last of their sums is the noisiest
    (std,), gain = set(ks.plan.noise_std), ks.query(1).gain
    assert found.noise == pytest.approx(math.sqrt(15) * std / (gain * all_rows))
    assert found.sampling == pytest.approx(0.5 / math.sqrt(all_rows))


def test_what_cannot_be_asked_is_refused():
    public: dict[str, Any] = {"rows_per_client": 5, "score": "classes"}
    table: list[tuple[Any, ...]] = [(name, None, public, "score") for name in NAMES[1:]]
    table += [(name, None, {}, "needs rows_per_client") for name in NAMES]
    table += [(name, 7, {}, "rounds here, got rounds = 7") for name in NAMES]

    def make(name: str, rounds: int | None, options: dict[str, Any]) -> None:
        STRATEGIES[name](Federation(10, 2, rounds, epsilon=1.0), **options)

    assert_refused(table, make)
