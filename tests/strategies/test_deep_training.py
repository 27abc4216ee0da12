"""Deep networks trained by `fedsgd`: sums of clients, rounds without rows, and that it learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategy_checks import nobody

from fedcal.clients.answers import answer
from fedcal.experiments.engines.inline import run_inline
from fedcal.privacy.federation import Federation
from fedcal.queries import Gradients
from fedcal.queries.request import Request
from fedcal.secure_aggregation import Ring
from fedcal.shards import Shards
from fedcal.strategies import FedSGD
from fedcal.training.networks import NETWORKS

CLASSES = 3


def shards(n: int, clients: int, seed: int = 0) -> Shards:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n)
    inputs = rng.normal(size=(n, 5)) + 3 * np.eye(CLASSES, 5)[labels]
    owner = np.sort(rng.integers(0, clients, n))
    return Shards.from_owner(np.zeros((n, CLASSES)), labels, owner, clients, inputs=inputs)


def method(n: int, clients: int, **options: Any) -> FedSGD:
    budget: Any = {"epsilon": 8.0, "delta": 1e-5, "unit": "example"}
    federation = Federation(clients=clients, classes=CLASSES, seed=2, **budget)
    given: Any = {"network": "mlp", "shape": "5", "rows_per_client": n / clients, "batch": 64.0}
    return FedSGD(federation, **(given | options))


@pytest.mark.parametrize("clipping", ["row", "global"])
def test_federated_sums_are_the_pooled_ones_bit_for_bit(clipping: Any) -> None:
    own = shards(90, 7)
    w = NETWORKS["mlp"].initial((5,), CLASSES, 1)
    query = Gradients("mlp", "5", w, 0.5, CLASSES, clipping, 2.0)
    bound = replace(query.bound("row"), per="row")
    request = Request(query, bound, Ring(7, 2.0**-36), 1)
    each = answer(own, request)
    pooled = Shards.from_owner(own.logits, own.labels, np.zeros(90, int), 1, inputs=own.inputs)
    np.testing.assert_array_equal(each.sum(axis=0, dtype=np.uint64), answer(pooled, request)[0])
    by_row = answer(pooled.each_row(), request)  # a row alone adds the same
    np.testing.assert_array_equal(by_row.sum(axis=0, dtype=np.uint64), answer(pooled, request)[0])
    norms = np.linalg.norm(by_row.view(np.int64) * 2.0**-36, axis=1)
    assert norms.max() <= 0.5


def test_rounds_without_rows_release_noise_of_the_plan_s_size() -> None:
    """Empty Poisson batches are steps like all others (Opacus #161, #631)."""
    train = method(1000, 2, epochs=0.5)
    seen = []
    train.on_release = lambda release: seen.append(release.values)
    run_inline(train, nobody(2, inputs=np.zeros((0, 5))))
    assert len(seen) == train.plan.rounds == 8
    values = np.concatenate(seen)
    wanted = train.plan.multiplier * 1.0  # the clip
    assert abs(values.std() / wanted - 1) < 5 / np.sqrt(2 * values.size)
    assert abs(values.mean()) < 5 * wanted / np.sqrt(values.size)
