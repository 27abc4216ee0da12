"""Without privacy a federation gives what pooled rows give, in memory linear in the rows."""

import math
import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedcal import datasets, partition, simulate
from fedcal.calibrators import TemperatureScaling
from fedcal.calibrators.conformity import uniform_of
from fedcal.core.numerics import softmax
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.histograms import FedBin
from fedcal.strategies.methods.newton import FedNewton

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
    few, many = (
        peak_bytes(
            FedBin(Federation(k, CLASSES, rounds=rounds), secure_aggregation="none"), shards_of(k)
        )
        for k in (100, clients)
    )
    assert many < 8 * clients * cells / 20
    assert many < 1.5 * few  # fifty times the clients, the same rows


def by_rank(z: np.ndarray, u: np.ndarray, penalty: float = 0.0, free: int = 0) -> np.ndarray:
    """TorchCP, APS and RAPS: cumulative sum of sorted probabilities - u p + penalty (rank - free)+.

    What rounding leaves of the mass of all classes counts as 1.
    """
    p = softmax(z)
    order = np.argsort(-p, axis=1)
    ranked = np.take_along_axis(p, order, axis=1)
    mass = np.cumsum(ranked, axis=1)
    mass[:, -1] = 1.0
    scores = mass - u[:, None] * ranked
    scores += penalty * np.maximum(np.arange(1, p.shape[1] + 1) - free, 0)
    out = np.empty_like(p)
    np.put_along_axis(out, order, scores, axis=1)
    return out


@pytest.mark.parametrize(
    ("name", "score", "formula", "settings"),
    [
        ("mmlu-llama", "lac", lambda z, u: 1 - softmax(z), {}),
        ("densenet-cifar100", "aps", lambda z, u: by_rank(z, 0 * u), {"randomised": False}),
        ("mmlu-llama", "aps", by_rank, {"randomised": True}),
        (
            *("densenet-cifar100", "raps", lambda z, u: by_rank(z, 0 * u, 0.1, 2)),
            {"penalty": 0.1, "free": 2, "randomised": False},
        ),
    ],
)
def test_sets_are_those_of_torchcp_whose_formulas_stand_here(name, score, formula, settings):
    """Thresholds of a federation are found up to 1e-12."""
    data, alpha = datasets.load(name).split(0), 0.1
    # equal probabilities are ranked by number here, and in no fixed order by others
    untie = 1e-4 * np.arange(data.classes)
    parts = {"scores": data.logits - untie, "test_scores": data.test_logits - untie}
    given = {k: z if data.input == "logits" else softmax(z) for k, z in parts.items()}
    own, y = replace(data, **given), data.labels
    result = simulate(
        own,
        method="conformal",
        clients=16,
        partition="natural" if name == "mmlu-llama" else "dirichlet:0.1",
        set={"alpha": alpha, "score": score, **settings},
    )
    z, test = own.logits, own.test_logits
    scores = np.sort(formula(z, uniform_of(z))[np.arange(len(y)), y])
    threshold = scores[math.ceil((len(y) + 1) * (1 - alpha)) - 1]
    theirs = formula(test, uniform_of(test))
    close = 2e-12 * (1 + settings.get("penalty", 0) * data.classes)
    clear = (np.abs(theirs - threshold) > close) | (theirs == threshold)
    assert (~clear).sum() <= 1
    assert (result.artifact.of_logits(test) == (theirs <= threshold))[clear].all()
