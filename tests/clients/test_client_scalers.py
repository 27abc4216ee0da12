"""Local optima: the pooled fit of the client's own rows, and the shards that have none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.scalers import local_log_a, temperature_update
from fedcal.numerics import LOG_A_LIMIT
from fedcal.queries import TemperatureUpdate
from fedcal.shards import Shards

INVERSE: dict[str, Any] = {"w": 1.0, "average": "inverse", "count": True}
PLAIN: dict[str, Any] = {"w": 1.0, "average": "temperature", "count": True}


def noisy_shards(c: int, clients: int = 8, rows: int = 400) -> Shards:
    """Overconfident rows with errors at every client but the last, which is empty."""
    rng = np.random.default_rng(c)
    labels = rng.integers(0, c, rows)
    logits = rng.normal(0, 4, (rows, c))
    logits[np.arange(rows), labels] += 3
    return Shards.from_owner(logits, labels, rng.integers(0, clients - 1, rows), clients)


def updates(shards: Shards, params: dict[str, Any]) -> np.ndarray:
    return temperature_update(shards, TemperatureUpdate(**params))


def shard(logits: list[list[float]], labels: list[int]) -> Shards:
    """One client."""
    y = np.array(labels)
    return Shards.from_owner(np.array(logits), y, np.zeros(len(y), np.int64), 1)


@pytest.mark.parametrize("c", [2, 10, 60])
@pytest.mark.parametrize("start", [-2.0, 0.0, 1.5])
def test_the_local_optimum_is_the_fit_of_the_clients_rows(c: int, start: float) -> None:
    shards = noisy_shards(c)
    got = local_log_a(shards, start)
    inner = 0
    for k in range(shards.clients - 1):
        own = shards.block(k, k + 1)
        fitted = TemperatureScaling().fit(own.logits, own.labels).temperature
        assert got[k] == pytest.approx(-math.log(fitted), abs=1e-6)
        inner += abs(got[k]) < LOG_A_LIMIT - 0.1
    assert inner == shards.clients - 1
    assert got[-1] == start


@pytest.mark.parametrize("w", [0.3, 1.0, 4.0])
def test_the_update_is_the_way_from_the_optimum_to_w(w: float) -> None:
    shards = noisy_shards(10)
    t = np.array(
        [
            TemperatureScaling().fit(own.logits, own.labels).temperature
            for own in (shards.block(k, k + 1) for k in range(7))
        ]
    )
    inverse = updates(shards, {**INVERSE, "w": w})
    assert inverse[:7, 0] == pytest.approx(w - 1 / t, abs=1e-5)
    plain = updates(shards, {**PLAIN, "w": w})
    assert plain[:7, 0] == pytest.approx(w - t, abs=1e-5)
    assert inverse[:, 1].tolist() == plain[:, 1].tolist() == [1.0] * 7 + [0.0]
    assert inverse[7].tolist() == plain[7].tolist() == [0.0, 0.0]
    uncounted = updates(shards, {**INVERSE, "w": w, "count": False})
    assert uncounted.tobytes() == np.ascontiguousarray(inverse[:, :1]).tobytes()


@pytest.mark.parametrize(
    ("logits", "labels", "a"),
    [
        ([[3.0, 0.0, 1.0], [0.0, 2.0, 1.0]], [0, 1], 20.0),  # no errors
        ([[3.0, 0.0, 1.0]], [0], 20.0),  # one row, right
        ([[2.0, 0.0, 1.0], [5.0, 0.0, 1.0]], [0, 0], 20.0),  # one class, right
        ([[3.0, 0.0, 1.0]], [1], 1 / 20),  # one row, wrong
        ([[3.0, 0.0], [0.0, 9.0]], [1, 0], 1 / 20),  # nothing but errors
        ([[4.0, 0.0], [1.0, 0.0]], [1, 1], 1 / 20),  # one class, wrong
    ],
)
def test_shards_without_an_optimum_answer_the_bound(
    logits: list[list[float]], labels: list[int], a: float
) -> None:
    own = shard(logits, labels)
    # beside other clients, so that the bound does not depend on being alone
    beside = Shards.from_owner(
        np.concatenate([own.logits, [[0.0] * own.classes]]),
        np.append(own.labels, 0),
        np.append(np.zeros(len(own.labels), np.int64), 1),
        2,
    )
    assert updates(own, INVERSE)[0] == pytest.approx([1 - a, 1.0], rel=1e-12)
    assert updates(beside, INVERSE)[0] == pytest.approx([1 - a, 1.0], rel=1e-12)
    assert updates(own, PLAIN)[0] == pytest.approx([1 - 1 / a, 1.0], rel=1e-12)
    fitted = TemperatureScaling().fit(own.logits, own.labels).temperature
    assert 1 / a == pytest.approx(fitted, rel=1e-5)


@pytest.mark.parametrize("limit", [2.0, 20.0, 1e6])
def test_shards_without_an_optimum_answer_the_bound_that_is_asked(limit: float) -> None:
    got = updates(shard([[4.0, 0.0], [0.0, 1.0]], [0, 1]), {**INVERSE, "limit": limit})
    assert got[0, 0] == pytest.approx(1 - limit)


def test_who_gives_up_after_some_steps_ends_on_the_way_to_the_bound() -> None:
    """Newton on log(1 + exp(-a m)) comes nearer to infinity by about 1 / m a step."""
    part = shard([[2.0, 0.0]], [0])
    ends = [
        float(np.exp(local_log_a(part, 0.0, math.log(1e6), steps)[0])) for steps in (1, 10, 50, 51)
    ]
    assert ends == sorted(ends)
    assert ends[2] < 50
    assert ends[3] - ends[2] == pytest.approx(1 / 2, rel=0.05)


@pytest.mark.parametrize("steps", [50, 80])
def test_who_has_an_optimum_finds_it_in_fifty_steps(steps: int) -> None:
    shards = noisy_shards(10)
    want = local_log_a(shards, 0.0)
    assert (np.abs(want) < LOG_A_LIMIT - 0.1).all()
    np.testing.assert_allclose(local_log_a(shards, 0.0, steps=steps), want, atol=1e-8)


@pytest.mark.parametrize("params", [{"steps": 7}, {"limit": 3.0}, {"limit": 1e3, "steps": 50}])
def test_the_answer_does_not_depend_on_who_shares_the_block(params: dict[str, Any]) -> None:
    shards = noisy_shards(10)
    together = updates(shards, {**INVERSE, **params})
    for k in range(shards.clients):
        alone = updates(shards.block(k, k + 1), {**INVERSE, **params})
        assert np.array_equal(alone[0], together[k])


def test_one_class_with_errors_has_an_optimum_of_its_own() -> None:
    own = shard([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]], [0, 0, 0])
    fitted = TemperatureScaling().fit(own.logits, own.labels).temperature
    assert 0.06 < fitted < 19
    assert updates(own, PLAIN)[0, 0] == pytest.approx(1 - fitted, abs=1e-6)


@pytest.mark.parametrize("c", [2, 10])
def test_single_rows(c: int) -> None:
    """A row alone has its optimum inside the bounds only if two classes are near each other."""
    rng = np.random.default_rng(c)
    logits, labels = rng.normal(0, 3, (50, c)), rng.integers(0, c, 50)
    shards = Shards.from_owner(logits, labels, np.arange(50), 50)
    got = local_log_a(shards, 0.0)
    for k in range(50):
        t = TemperatureScaling().fit(logits[k : k + 1], labels[k : k + 1]).temperature
        assert got[k] == pytest.approx(-math.log(t), abs=2e-6)
    assert (np.abs(got) == LOG_A_LIMIT).any()


def test_a_row_of_equal_logits_is_indifferent_but_finite() -> None:
    got = updates(shard([[1.0, 1.0, 1.0]], [2]), INVERSE)
    assert np.isfinite(got).all()
    assert abs(1.0 - got[0, 0]) <= 20 * (1 + 1e-12)
