"""Derivatives of the temperature objective: slow twins in exact sums, and finite differences."""

import math
from typing import Any

import numpy as np
import pytest
from strategy_checks import some_shards

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.questions import temperature
from fedcal.clients.questions.temperature import (
    TemperatureNewton,
    TemperatureScores,
    TemperatureUpdate,
)
from fedcal.core.numerics import LOG_A_LIMIT, log_grid
from fedcal.core.shards import Shards

CLIENTS = 5
GRID = {"low": 0.25, "high": 8.0, "points": 9}
TEMPERATURES = np.exp(log_grid(0.25, 8.0, 9))


def client_rows(shards: Shards, k: int) -> list[tuple[list[float], int]]:
    a, b = int(shards.offsets[k]), int(shards.offsets[k + 1])
    return [(shards.logits[i].tolist(), int(shards.labels[i])) for i in range(a, b)]


def slow_sums(shards: Shards, k: int, log_a: float) -> tuple[float, float]:
    """G and H as they are defined, each sum exact."""
    a = math.exp(log_a)
    g, h = [], []
    for z, y in client_rows(shards, k):
        e = [math.exp(a * (v - max(z))) for v in z]
        p = [v / math.fsum(e) for v in e]
        mean = math.fsum(q * v for q, v in zip(p, z, strict=True))
        var = math.fsum(q * (v - mean) ** 2 for q, v in zip(p, z, strict=True))
        g.append(a * (mean - z[y]))
        h.append(a * a * var)
    return math.fsum(g), math.fsum(h)


@pytest.mark.parametrize("c", [2, 10, 50])
@pytest.mark.parametrize("log_a", [-1.5, 0.0, 0.75])
def test_newton_is_its_slow_twin(c, log_a):
    shards = some_shards(c, rows=80, clients=CLIENTS, scale=3.0)
    want = [slow_sums(shards, k, log_a) for k in range(CLIENTS)]
    got = TemperatureNewton(log_a, shards.classes).sums(shards)
    assert got == pytest.approx(np.array(want), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("c", [2, 10])
def test_scores_are_the_gradient_on_the_grid(c):
    shards = some_shards(c, rows=80, clients=CLIENTS, scale=3.0)
    want = [[slow_sums(shards, k, -math.log(t))[0] for t in TEMPERATURES] for k in range(5)]
    assert TemperatureScores(**GRID).sums(shards) == pytest.approx(
        np.array(want), rel=1e-10, abs=1e-10
    )


def updates(shards: Shards, params: dict[str, Any]) -> np.ndarray:
    return TemperatureUpdate(**params).sums(shards)


def shard(logits: list[list[float]], labels: list[int]) -> Shards:
    """One client."""
    y = np.array(labels)
    return Shards.from_owner(np.array(logits), y, np.zeros(len(y), np.int64), 1)


@pytest.mark.parametrize("c", [2, 10, 60])
def test_the_local_optimum_is_the_fit_of_the_clients_rows(c):
    """Wherever it starts, within 50 steps; the update is the way from it to w."""
    shards = some_shards(c, rows=400, clients=9, scale=4.0).block(1, 9)  # the last has none
    own = [shards.block(k, k + 1) for k in range(shards.clients - 1)]
    t = np.array([TemperatureScaling().fit(one.logits, one.labels).temperature for one in own])
    assert (np.abs(np.log(t)) < LOG_A_LIMIT - 0.1).all()
    for start, steps in ((-2.0, 80), (0.0, 50), (1.5, 80)):
        got = temperature.local_log_a(shards, start, steps=steps)
        assert got[:-1] == pytest.approx(-np.log(t), abs=1e-6)
        assert got[-1] == start
    for w in (0.3, 4.0):
        for average, optimum in (("inverse", 1 / t), ("temperature", t)):
            asked = {"w": w, "average": average, "count": True}
            sent = updates(shards, asked)
            assert sent[:-1, 0] == pytest.approx(w - optimum, abs=1e-5)
            assert sent[:, 1].tolist() == [1.0] * len(t) + [0.0]
            assert sent[-1, 0] == 0
            uncounted = updates(shards, asked | {"count": False})
            assert np.array_equal(uncounted, sent[:, :1])


def test_shards_without_an_optimum_answer_the_bound():
    """Beside other clients, too; the fit of a calibrator has the same bound."""
    inverse: dict[str, Any] = {"w": 1.0, "average": "inverse", "count": True}
    for logits, labels, a in (
        ([[3.0, 0.0, 1.0], [0.0, 2.0, 1.0]], [0, 1], 20.0),  # no errors
        ([[3.0, 0.0, 1.0]], [0], 20.0),  # one row, right
        ([[2.0, 0.0, 1.0], [5.0, 0.0, 1.0]], [0, 0], 20.0),  # one class, right
        ([[3.0, 0.0, 1.0]], [1], 1 / 20),  # one row, wrong
        ([[3.0, 0.0], [0.0, 9.0]], [1, 0], 1 / 20),  # nothing but errors
        ([[4.0, 0.0], [1.0, 0.0]], [1, 1], 1 / 20),  # one class, wrong
    ):
        own = shard(logits, labels)
        beside = Shards.from_owner(
            np.concatenate([own.logits, [[0.0] * own.classes]]),
            np.append(own.labels, 0),
            np.append(np.zeros(len(own.labels), np.int64), 1),
            2,
        )
        for shards in (own, beside):
            assert updates(shards, inverse)[0] == pytest.approx([1 - a, 1.0], rel=1e-12)
        plain = updates(own, inverse | {"average": "temperature"})
        assert plain[0] == pytest.approx([1 - 1 / a, 1.0], rel=1e-12)
        fitted = TemperatureScaling().fit(own.logits, own.labels).temperature
        assert 1 / a == pytest.approx(fitted, rel=1e-5)
    for limit in (2.0, 1e6):
        got = updates(shard([[4.0, 0.0], [0.0, 1.0]], [0, 1]), {**inverse, "limit": limit})
        assert got[0, 0] == pytest.approx(1 - limit)


@pytest.mark.parametrize("classes", [2, 10, 200])
def test_scores_between_the_nodes_are_those_of_each_temperature(classes):
    rng = np.random.default_rng(0)
    rows = []
    for scale in (0.01, 1.0, 10.0, 300.0):
        rows.append(rng.normal(0, scale, (30, classes)))
        rows.append(np.zeros((30, classes)))
        rows[-1][:, 0] = np.linspace(0, 3 * scale, 30)  # all others equally far: the hardest
    z = np.concatenate(rows)
    shards = Shards(z, rng.integers(0, classes, len(z)), np.arange(len(z) + 1))
    query = TemperatureScores(0.25, 8.0, 257)
    nodes = temperature.score_nodes(query, classes)
    assert len(nodes) < 100
    every = [TemperatureScores(t, 9.0, 1) for t in np.exp(log_grid(0.25, 8.0, 257))]
    exact = np.concatenate([one.sums(shards) for one in every], axis=1)
    got = query.sums(shards)
    np.testing.assert_allclose(got, exact, rtol=0, atol=1e-10)
    assert not query.sums(shards.keep(np.empty(0, np.int64))).any()
