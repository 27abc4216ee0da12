"""What calibration is worth on real networks, with and without privacy."""

import math
import tracemalloc
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedcal import datasets, partition, simulate
from fedcal.calibrators import TemperatureScaling
from fedcal.core.checks import TooLittle
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset, catalogue
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES, FederatedStrategy
from fedcal.strategies.methods.histograms import FedBin
from fedcal.strategies.methods.newton import FedNewton
from fedcal.strategies.settings import calibrating, settings_of

CLASSES = 10


@cache
def resnet() -> Dataset:
    return datasets.load("resnet110-cifar10")


def shards_of(clients: int, seed: int = 0) -> Shards:
    data = resnet()
    owner = partition.dirichlet(data.labels, clients, 0.1, np.random.default_rng(seed))
    return rows_by_owner(data.logits, data.labels, owner, clients)


@pytest.mark.parametrize("clients", [1, 137, 10_000])
def test_newton_reaches_the_pooled_optimum_for_any_partition(clients):
    shards = shards_of(clients)
    assert (shards.rows == 0).any() == (clients > 1)
    strategy = FedNewton(Federation(clients, CLASSES), secure_aggregation="none")
    run_inline(strategy, shards)
    best = TemperatureScaling().fit(shards.logits, shards.labels).temperature
    assert -strategy.w[0] == pytest.approx(math.log(best), abs=1e-6)
    assert len(strategy.releases) == 8
    g, h = strategy.releases[5].values  # where five steps have led
    assert abs(g / h) < 1e-6


# -- every shipped data set -----------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "game-forecasts": {"partition": "natural"},
    "mnist-cnn": {"partition": "natural"},
    "mmlu-llama": {"partition": "natural"},
    "densenet-cifar100": {"clients": 20},
}
SHIPPED = {entry.name: entry for entry in catalogue()}


@pytest.mark.parametrize(
    ("name", "method"), [(list(SHIPPED)[j % len(SHIPPED)], m) for j, m in enumerate(calibrating())]
)
def test_every_strategy_runs_on_a_shipped_set(name, method):
    """Sets by turns; with privacy where the method has it."""
    epsilon = math.inf if STRATEGIES[method].exact_only else 1.0
    options: dict[str, Any] = {**OPTIONS.get(name, {"clients": 40})}
    if method in ("fedtemp", "fedvector", "fedmatrix", "fedopvector", "fedcal"):
        options["rounds"] = 2
    quick = {"steps": 5, "epochs": 1, "points": 33}  # less work, no other path through the code
    own = settings_of(method).keys() - ({"points"} if "search" in settings_of(method) else set())
    options["set"] = {k: v for k, v in quick.items() if k in own}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TooLittle)
        found = simulate(name, method=method, epsilon=epsilon, **options)
    assert all(math.isfinite(v) for v in found.after.values())
    assert found.test_probs.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    if "partition" in options:
        assert found.config.clients == SHIPPED[name].clients > 0


def peak_bytes(strategy: FederatedStrategy, shards: Shards) -> int:
    tracemalloc.start()
    try:
        run_inline(strategy, shards)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_histograms_of_ten_thousand_clients_take_memory_linear_in_the_rows():
    """A dense (clients, cells) array of 8-byte numbers would take 205 MB."""
    clients, rounds, cells = 10_000, 12, 2 * CLASSES * 128
    dense = 8 * clients * cells
    assert dense > 200e6
    few, many = (
        peak_bytes(
            FedBin(Federation(k, CLASSES, rounds=rounds), secure_aggregation="none"), shards_of(k)
        )
        for k in (100, clients)
    )
    assert many < dense / 20
    assert many < 1.5 * few  # fifty times the clients, the same rows
