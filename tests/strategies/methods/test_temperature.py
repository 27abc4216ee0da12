"""FedTemp, FedNewton and FedOneShot on releases whose outcome is known by hand."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_refused

from fedcal.clients.answers import STATISTICS
from fedcal.core.shards import Shards
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.queries import TemperatureNewton
from fedcal.strategies import FederatedStrategy, FedNewton, FedOneShot, FedTemp

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


def test_newton_bound_comes_from_the_public_nominal_rows():
    for m, norm in ((50.0, 10.0), (100, 20.0), (5.0, 3.0), (0.5, 3.0)):
        plan = FedNewton(federation(epsilon=1.0), rows_per_client=m).plan
        assert (plan.bound.norms, plan.bound.rule) == (pytest.approx((norm, 3 * norm)), "joint")
        assert plan.noise_std == pytest.approx((norm * plan.multiplier, 3 * norm * plan.multiplier))


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


def test_fedtemp_asks_for_its_own_bound_and_steps_only_and_never_leaves_it():
    plain = FedTemp(federation()).query(1).params()
    assert set(plain) == {"w", "average", "count"}
    asked = FedTemp(federation(), limit=3.0, steps=50).query(1).params()
    assert asked == {**plain, "limit": 3.0, "steps": 50}
    for sign, temperature in ((-1.0, 1 / 3), (1.0, 3.0)):
        strategy = FedTemp(federation(), limit=3.0)
        assert learn(strategy, [sign * 9.0, 1.0]) == pytest.approx(temperature)


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
    assert (plan.mechanism, plan.delta, plan.epsilon_per_release) == ("exponential", 0.0, 1.0)


def test_one_shot_asks_few_temperatures_where_scores_are_released():
    few: tuple[dict[str, Any], ...] = (
        {"trust": "distributed"},
        {"trust": "local"},
        {"trust": "local", "unit": "example"},
        {"mechanism": "laplace"},
    )
    for fields in (*few, {}, {"mechanism": "exponential"}, {"unit": "example"}):
        own, ends = federation(epsilon=1.0, **fields), {"low": 0.5, "high": 4.0}
        strategy = FedOneShot(own, rows_per_client=50, **ends)
        ask, asked = strategy.query(1), 8 if fields in few else 257
        assert (ask.lengths(), ask.params()) == ((asked,), {**ends, "points": asked})
        assert (strategy.plan.mechanism == "exponential") == (asked == 257)
        bound = strategy.plan.bound
        norm = 4.0 if "unit" in fields else 10.0
        assert (bound.rule, bound.norms) == ("per_value", (norm,))


@pytest.mark.parametrize("classes", [2, 1000])
def test_no_rows_curvature_passes_half_of_its_bound(classes):
    """Variance of log-probabilities: largest with one class ahead of equal others."""
    ahead = np.linspace(0, 40, 401)[:, None]
    logits = np.concatenate([ahead, np.zeros((401, classes - 1))], axis=1)
    shards = Shards.from_owner(logits, np.zeros(401, int), np.arange(401), 401)
    largest = STATISTICS["temperature_newton"](shards, TemperatureNewton(0.0, classes))[:, 1].max()
    own = federation(epsilon=1.0, unit="example", classes=classes)
    bound = FedNewton(own).plan.bound
    assert bound.per == "row"
    assert 0.35 * bound.norms[1] / 2 < largest < bound.norms[1] / 2
    assert bound.norms[0] == 4.0


def test_bad_parameters_are_refused_in_one_line():
    bad: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
        (FedNewton, {}, {"epsilon": 1.0}, "rows_per_client"),
        (FedNewton, {"rows_per_client": -1}, {}, "rows_per_client"),
        (FedOneShot, {}, {"epsilon": 1.0}, "rows_per_client"),
        (FedOneShot, {}, {"rounds": 2}, "rounds"),
        (FedOneShot, {"points": 1}, {}, "points"),
        (FedOneShot, {"low": 3.0, "high": 3.0}, {}, "low"),
        (FedTemp, {"clip": 0.0}, {}, "clip"),
        (FedTemp, {"server_lr": -1.0}, {}, "server_lr"),
        (FedTemp, {"average": "median"}, {}, "average"),
        *((FedTemp, {"limit": limit}, {}, "limit") for limit in (1.0, 1e7, math.nan)),
        *((FedTemp, {"steps": steps}, {}, "steps") for steps in (0, 1.5)),
        (FedTemp, {"secure_aggregation": "protocol"}, {}, "secure aggregation"),
    ]
    assert_refused(bad, lambda method, options, own: method(federation(**own), **options))
