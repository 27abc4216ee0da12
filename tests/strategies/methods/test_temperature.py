"""FedTemp, FedNewton and FedOneShot on releases whose outcome is known by hand."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedcal.clients.questions.temperature import TemperatureNewton
from fedcal.core.shards import Shards
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.averaging import FedTemp
from fedcal.strategies.methods.newton import FedNewton
from fedcal.strategies.methods.search import FedOneShot

federation = partial(Federation, clients=100, classes=3)


def learn(
    strategy: FederatedStrategy, values: list[float], std: list[float] | None = None
) -> float:
    """Temperature after one release."""
    stds = np.zeros(len(values)) if std is None else np.array(std)
    strategy.update(Release(1, "any", np.array(values), stds))
    arrays = strategy.result().arrays()
    assert int(arrays["classes"]) == 3
    return float(arrays["temperature"])


def shards_of(clients: int, rows: int) -> Shards:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, rows)
    logits = rng.normal(0, 4, (rows, 3))
    logits[np.arange(rows), labels] += 3
    return Shards.from_owner(logits, labels, rng.integers(0, clients, rows), clients)


def test_newton_step():
    """Never out of the temperatures that a fit may have."""
    for values, std, log_t in (
        ([1.0, 4.0], [0.0, 0.0], 0.25),
        ([-1.0, 4.0], [0.0, 0.0], -0.25),
        ([9.0, 4.0], [0.0, 0.0], 0.7),  # a round at most doubles T ...
        ([-9.0, 4.0], [0.0, 0.0], -0.7),  # ... or halves it
        ([1.0, 4.0], [1.0, 1.5], 0.25),  # two stds are 3: the curvature is trusted
        ([1.0, 4.0], [1.0, 5.0], 0.1),  # two stds are 10: they replace it
        ([1.0, -4.0], [1.0, 5.0], 0.1),
        ([0.0, 0.0], [0.0, 0.0], 0.0),  # no rows
        ([1.0, -1.0], [0.0, 0.0], 0.0),
    ):
        found = learn(FedNewton(federation()), values, std)
        assert found == pytest.approx(math.exp(log_t), rel=1e-14), (values, std)
    strategy = FedNewton(federation())
    assert (strategy.query(1).params(), strategy.query(1).lengths()) == ({"log_a": 0.0}, (1, 1))
    assert [learn(strategy, [1e6, 1.0]) for _ in range(9)][-1] == pytest.approx(20.0, rel=1e-14)
    assert strategy.query(9).params() == {"log_a": -math.log(20)}


def test_fedtemp_divides_by_the_repliers_with_rows():
    averages: tuple[tuple[Any, list[float], float], ...] = (
        ("inverse", [2.0, 4.0], 0.5),
        ("temperature", [-3.0, 2.0], 2.5),
        ("inverse", [0.0, 0.0], 1.0),  # nobody has rows
        ("inverse", [900.0, 9.0], 1 / 20),  # kept in [1/20, 20]
        ("temperature", [-900.0, 9.0], 20.0),
    )
    for average, values, w in averages:
        strategy = FedTemp(federation(sampling_rate=0.5), average=average)
        assert strategy.query(1).lengths() == (1, 1)
        temperature = learn(strategy, values)
        assert temperature == pytest.approx(1 / w if average == "inverse" else w, rel=1e-14)
        assert strategy.query(2).params()["w"] == pytest.approx(w, rel=1e-14)


@pytest.mark.parametrize(
    ("average", "clients", "rate"), [("inverse", 1000, 0.02), ("temperature", 40, 0.5)]
)
def test_fedtemp_with_privacy_divides_by_q_k(average, clients, rate):
    public = federation(clients=clients, sampling_rate=rate, epsilon=1.0, rounds=1)
    strategy = FedTemp(public, average=average, clip=0.25, server_lr=0.5)
    ask = strategy.query(1)
    assert (ask.lengths(), ask.params()["count"]) == ((1,), False)
    temperature = learn(strategy, [4.0], [1.0])
    w = 1 - 0.5 * 4.0 / (rate * clients)
    assert temperature == pytest.approx(1 / w if average == "inverse" else w, rel=1e-13)
    assert strategy.plan.bound.norms == (0.25,)


@pytest.mark.parametrize("missing", [0, 19])
def test_dropouts_do_not_change_the_private_divisor(missing):
    strategy = FedTemp(federation(clients=20, epsilon=1.0, rounds=1))
    gone = np.arange(missing)
    run_inline(strategy, shards_of(20, 200), unavailable=lambda r: gone)
    (release,) = strategy.releases
    w = min(max(1.0 - float(release.values[0]) / 20, 1 / 20), 20.0)
    assert strategy.w == pytest.approx(w, rel=1e-14)


GRID: Any = {"low": 0.5, "high": 4.0, "points": 4}


def test_one_shot_interpolates_the_root_without_privacy():
    for values, temperature in (
        # T = 1/2, 1, 2, 4; the score crosses zero three quarters of the way from 1 to 2
        ([9.0, 3.0, -1.0, -2.0], 2**0.75),
        ([0.0, 0.0, 0.0, 0.0], 1.0),  # no rows: the model is left alone
        ([4.0, 3.0, 2.0, 1.0], 4.0),  # the root lies beyond the grid
        ([-1.0, -2.0, -3.0, -4.0], 0.5),
        ([4.0, 0.0, -3.0, -4.0], 1.0),
    ):
        strategy = FedOneShot(federation(), **GRID)
        assert strategy.query(1).params() == GRID
        assert strategy.query(1).lengths() == (4,)
        assert learn(strategy, values) == pytest.approx(temperature, rel=1e-14)


def test_one_shot_takes_the_drawn_point_with_privacy():
    for index, temperature in ((0, 0.5), (1, 1.0), (3, 4.0)):
        strategy = FedOneShot(federation(epsilon=1.0), rows_per_client=50, **GRID)
        assert learn(strategy, [float(index)], []) == pytest.approx(temperature, rel=1e-14)
    plan = strategy.plan
    assert (plan.bound.norms, plan.bound.rule) == ((10.0,), "per_value")
    assert (plan.mechanism.name, plan.delta, plan.mechanism.epsilon) == ("exponential", 0.0, 1.0)


@pytest.mark.parametrize("classes", [2, 1000])
def test_no_rows_curvature_passes_half_of_its_bound(classes):
    """Variance of log-probabilities: largest with one class ahead of equal others."""
    ahead = np.linspace(0, 40, 401)[:, None]
    logits = np.concatenate([ahead, np.zeros((401, classes - 1))], axis=1)
    shards = Shards.from_owner(logits, np.zeros(401, int), np.arange(401), 401)
    largest = TemperatureNewton(0.0, classes).sums(shards)[:, 1].max()
    own = federation(epsilon=1.0, unit="example", classes=classes)
    bound = FedNewton(own).plan.bound
    assert bound.per == "row"
    assert 0.35 * bound.norms[1] / 2 < largest < bound.norms[1] / 2
    assert bound.norms[0] == 4.0
