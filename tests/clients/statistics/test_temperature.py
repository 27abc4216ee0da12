"""Derivatives of the temperature objective: slow twins in exact sums, and finite differences."""

import math

import numpy as np
import pytest

from fedcal.clients.statistics.temperature import temperature_newton, temperature_scores
from fedcal.core.numerics import log_grid
from fedcal.core.shards import Shards
from fedcal.queries import TemperatureNewton, TemperatureScores

CLIENTS = 5
GRID = {"low": 0.25, "high": 8.0, "points": 9}
TEMPERATURES = np.exp(log_grid(0.25, 8.0, 9))


def some_shards(c: int, rows: int = 80) -> Shards:
    """Rows of clients 0 to 3 of 5."""
    rng = np.random.default_rng(c)
    labels, owner = rng.integers(0, c, rows), rng.integers(0, CLIENTS - 1, rows)
    logits = rng.normal(0, 3, (rows, c))
    logits[np.arange(rows), labels] += 4
    return Shards.from_owner(logits, labels, owner, CLIENTS)


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
    shards = some_shards(c)
    want = [slow_sums(shards, k, log_a) for k in range(CLIENTS)]
    got = temperature_newton(shards, TemperatureNewton(log_a, shards.classes))
    assert got == pytest.approx(np.array(want), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("c", [2, 10])
def test_scores_are_the_gradient_on_the_grid(c):
    shards = some_shards(c)
    want = [[slow_sums(shards, k, -math.log(t))[0] for t in TEMPERATURES] for k in range(5)]
    assert temperature_scores(shards, TemperatureScores(**GRID)) == pytest.approx(
        np.array(want), rel=1e-10, abs=1e-10
    )
