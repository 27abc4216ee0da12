"""FedCal's local training: plain SGD of one client, for all of them at once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal.calibrators import OrderPreservingMLP
from fedcal.calibrators.order_preserving_mlp import LARGEST_GRADIENT, batches
from fedcal.clients.statistics import scaling
from fedcal.clients.statistics.scaling import mlp_update
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.queries import MLPUpdate

SIZES = (0, 1, 130, 7, 64, 65, 0, 20, 300, 8)


def some_shards(c: int = 4, sizes: tuple[int, ...] = SIZES) -> Shards:
    """Overconfident rows of clients with these numbers of rows."""
    rng = np.random.default_rng([c, *sizes])
    n = sum(sizes)
    labels = rng.integers(0, c, n)
    logits = rng.normal(0, 5, (n, c))
    logits[np.arange(n), labels] += 4
    return Shards.from_owner(logits, labels, np.repeat(np.arange(len(sizes)), sizes), len(sizes))


def asked(c: int = 4, **changes: Any) -> MLPUpdate:
    w = OrderPreservingMLP.identity(c)
    w += np.random.default_rng(c).normal(0, 0.1, w.shape)
    fields = {"w": w, "epochs": 3, "batch": 64, "lr": 0.05, "seed": 3, "count": False}
    return MLPUpdate(**(fields | changes))


def sgd(own: Shards, query: MLPUpdate) -> np.ndarray:
    """The same training, row by row and without padding."""
    y, rank = OrderPreservingMLP.features(own.logits, own.labels)
    w = query.w.copy()
    for order, weights in zip(*batches(len(y), query.epochs, query.batch, query.seed), strict=True):
        rows = order[weights > 0]
        residual = softmax(OrderPreservingMLP.scores(y[rows], w))
        residual[np.arange(len(rows)), rank[rows]] -= 1
        g = OrderPreservingMLP.pull_back(y[rows], w, residual).mean(axis=0)
        w -= query.lr * g * min(1.0, LARGEST_GRADIENT / float(np.linalg.norm(g)))
    return np.asarray(w)


@pytest.mark.parametrize(("batch", "epochs"), [(64, 2), (16, 1)])
def test_the_update_is_the_way_from_where_sgd_on_the_own_rows_ends(batch, epochs):
    shards, query = some_shards(), asked(batch=batch, epochs=epochs)
    got = mlp_update(shards, query)
    counted = mlp_update(shards, replace(query, count=True))
    np.testing.assert_array_equal(counted, np.column_stack([got, np.array(SIZES) > 0]))
    for k in range(shards.clients):
        want = query.w - sgd(shards.block(k, k + 1), query) if SIZES[k] else 0 * query.w
        np.testing.assert_allclose(got[k], want, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("c", [3, 10, 70])
def test_how_many_are_trained_together_changes_no_bit(c, monkeypatch):
    shards, query = some_shards(c, (70, 65, 30, 29, 28, 27, 5, 80)), asked(c)
    want = mlp_update(shards, query)
    for together in (1, 3, 64):
        monkeypatch.setattr(scaling, "_TOGETHER", together)
        assert mlp_update(shards, query).tobytes() == want.tobytes()


def test_an_update_is_bounded_by_its_steps_before_any_clipping():
    shards = some_shards()
    shards = Shards(shards.logits * 1e98, shards.labels, shards.offsets)
    norms = np.linalg.norm(mlp_update(shards, asked(lr=0.01)), axis=1)
    steps = 3 * np.ceil(np.array(SIZES) / 64)
    assert (norms <= 0.01 * LARGEST_GRADIENT * steps * (1 + 1e-9)).all()
    assert norms.max() > 0.01 * LARGEST_GRADIENT
