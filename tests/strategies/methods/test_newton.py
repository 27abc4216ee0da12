"""Newton's method in one parameter and in several: the step, the filter, the pooled optimum."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_refused

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.questions.temperature import TemperatureNewton
from fedcal.core.numerics import softmax
from fedcal.core.scores import rows_by_owner
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods import newton
from fedcal.strategies.methods.newton import FedNewton, FedNewtonEntropy, FedNewtonVector, symmetric
from fedcal.units import UNITS

CLIENTS, CLASSES = 12, 3
federation = partial(Federation, clients=CLIENTS, classes=CLASSES)


@pytest.mark.parametrize(
    ("g", "h", "log_t"),
    [(1, 4, 0.25), (-1, 4, -0.25), (9, 4, 0.7), (-9, 4, -0.7), (0, 0, 0), (1, -1, 0.7)],
)
def test_a_step_of_one_parameter(g, h, log_t):
    """At most doubling T, or halving it; none without rows; saturated scores lose the curvature."""
    strategy = FedNewton(federation())
    strategy.update(Release(1, "any", np.array([g, h], float), np.zeros(2)))
    assert strategy.result().temperature == pytest.approx(math.exp(log_t), rel=1e-8)


@pytest.mark.parametrize("classes", [2, 1000])
def test_no_rows_curvature_passes_half_of_its_bound(classes):
    """Variance of log-probabilities: largest with one class ahead of equal others."""
    ahead = np.linspace(0, 40, 401)[:, None]
    logits = np.concatenate([ahead, np.zeros((401, classes - 1))], axis=1)
    shards = rows_by_owner(logits, np.zeros(401, int), np.arange(401), 401)
    largest = TemperatureNewton(0.0, classes).sums(shards)[:, 1].max()
    bound = FedNewton(federation(epsilon=1.0, unit="example", classes=classes)).plan.bound
    assert bound.per == "row"
    assert 0.35 * bound.norms[1] / 2 < largest < bound.norms[1] / 2
    assert bound.norms[0] == 4.0


def rows(n: int = 600, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident where they are uncertain, more than where they are sure."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, CLASSES))
    p = softmax(logits * np.where(np.abs(logits).max(axis=1) > 3, 0.8, 0.5)[:, None])
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return logits, np.minimum(labels, CLASSES - 1)


def loss(probs: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probs[np.arange(len(labels)), labels]).mean())


@pytest.mark.parametrize(
    ("method", "saturated"),
    [*((FedNewton, z) for z in (0, 28, 400)), (FedNewtonEntropy, 0), (FedNewtonVector, 0)],
)
def test_any_partition_reaches_the_pooled_optimum(method, saturated):
    logits, labels = rows()
    if saturated:  # as sure where they are wrong
        logits = saturated * np.eye(CLASSES)[logits.argmax(axis=1)]
    best = (method.form or TemperatureScaling)().fit(logits, labels)
    pooled = loss(best.predict_proba(logits), labels)
    assert pooled < loss(softmax(logits), labels) - 0.01
    for owner in (np.arange(len(labels)) % CLIENTS, labels, 0 * labels):
        strategy = method(federation())
        run_inline(strategy, rows_by_owner(logits, labels, owner, CLIENTS))
        over = loss(strategy.result().predict_proba(logits), labels) - pooled
        assert over <= (1e-9 if method is FedNewton else 1e-6)


def updated(strategy: Any, g: list[float], h: list[float]) -> Any:
    """Return the step after a release without noise."""
    before = strategy.w.copy()
    strategy.update(Release(1, "any", np.array([*g, *h]), np.zeros(5)))
    return strategy.w - before


def test_a_long_step_is_cut_to_the_radius_but_not_where_much_is_known():
    step = updated(FedNewtonEntropy(federation()), [40.0, 1e-3], [1e4, 0.0, 1e-5])
    assert step[0] == pytest.approx(-4e-3, rel=1e-2)  # Newton's own, though the other one is cut
    assert step[1] == pytest.approx(-0.7, rel=1e-6)


@pytest.mark.parametrize(
    ("gradients", "curvature", "steps"),
    [
        ((9.0, 8.3, 6.9), 1.0, [-0.7, -1.4, -2.8]),  # as predicted: 9 - 0.7, and 8.3 - 1.4
        ((9.0, 5.0), 1.0, [-0.7, -0.7]),  # not as predicted
        ((9.0, -6.0), 1e-3, [-0.7, 0.35]),  # too far: halved
        ((9.0, -9.0), 1.0, [-0.7, 0.7 * 3 / 4]),  # as steep up as down: no lower than before
    ],
)
def test_steps_grow_where_the_curvature_predicted_the_gradient(gradients, curvature, steps):
    strategy = FedNewtonEntropy(federation())
    found = [updated(strategy, [g, 0.0], [curvature, 0.0, curvature])[0] for g in gradients]
    assert found == pytest.approx(steps)


def test_a_round_in_which_nobody_was_asked_does_not_stop_the_run():
    strategy = FedNewtonEntropy(federation(sampling_rate=0.1))
    assert not updated(strategy, [0.0, 0.0], [0.0, 0.0, 0.0]).any()
    step = updated(strategy, [0.2, 0.0], [2.0, 0.0, 1.0])
    assert step == pytest.approx([-0.1, 0.0], rel=1e-6)
    assert not updated(strategy, [0.0, 0.0], [0.0, 0.0, 0.0]).any()
    assert updated(strategy, [0.2, 0.0], [2.0, 0.0, 1.0]) == pytest.approx(step, rel=1e-6)


def private(std: float) -> FedNewtonEntropy:
    """Return a strategy after a release that says w = (-0.6, 0.3), with noise in G, none in H."""
    strategy = FedNewtonEntropy(federation(epsilon=1.0), rows_per_client=50)
    g = symmetric(np.array([100.0, 10.0, 20.0]), 2) @ [0.6, -0.3]
    stds = np.array([std, std, 1e-9, 1e-9, 1e-9])
    strategy.update(Release(1, "any", np.concatenate([g, [100.0, 10.0, 20.0]]), stds))
    return strategy


def test_little_noise_is_newtons_step_and_much_noise_is_none():
    one = np.ones(1)  # a curvature below its noise counts as its noise
    steps = [newton.KalmanFilter(one).step(one, h * one, one, 2.0 * one) for h in (-3.0, 1.0, 2.0)]
    assert steps == [[pytest.approx(-2.0 / 5.0)]] * 3
    np.testing.assert_allclose(private(1e-6).w, [-0.6, 0.3], rtol=1e-6)
    assert np.abs(private(1e6).w).max() < 1e-6
    slopes = [float(private(std).w[1]) for std in (1.0, 10.0, 30.0, 100.0)]
    assert slopes == sorted(slopes, reverse=True)  # the less is known, the nearer to temperature
    assert abs(private(30.0).w[0]) > 10 * abs(private(30.0).w[1])


def test_a_temperature_is_the_mean_of_what_all_rounds_say():
    """Also where the curvature falls along the way, as of a model that is not sure enough."""
    off, std = [], np.array([3.0, 1e-9])
    for noise in np.random.default_rng(0).normal(0, 3, (400, 4)):
        strategy = FedNewton(federation(epsilon=1.0), rows_per_client=50)
        for one in noise:
            h = 100 * math.exp(0.3 - strategy.w[0])
            strategy.update(Release(1, "any", np.array([100 - h + one, h]), std))
        off.append(strategy.w[0] - 0.3)
    # the std of one round is .03, that of four .015
    assert [np.std(off), 0.015 + np.mean(off)] == pytest.approx([0.0155] * 2, abs=0.0045)


def test_a_clients_clip_grows_with_the_budget_but_slower_than_noise_falls():
    own = [federation(clients=1000, epsilon=e, sampling_rate=0.3) for e in (0.1, 1.0, 10.0)]
    plans = [FedNewton(one, rows_per_client=100).plan for one in own]
    clips, stds = np.array([(p.bound.scale[0], p.noise_std[0]) for p in plans]).T
    np.testing.assert_allclose(clips, np.sqrt(600 * 100 * 3 / 20 * clips / stds), rtol=5e-3)
    assert min(*np.diff(clips), *-np.diff(stds)) > 0


@pytest.mark.parametrize("epsilon", [1e-3, 1e3, 1e9])
def test_the_filter_keeps_a_covariance_whatever_clients_send(epsilon):
    """All of 20,000 clients at the bound: G entirely in one direction, H anything."""
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        own = federation(clients=20_000, epsilon=epsilon, rounds=8)
        strategy = FedNewtonEntropy(own, rows_per_client=5)
        bounds, size = strategy.plan.bound.scale, len(strategy.w)
        std = bounds * strategy.plan.multiplier
        for number in range(1, 9):
            sums = 20_000 * bounds / math.sqrt(2 * size)
            sums[size:] *= rng.uniform(0, seed, len(sums) - size)
            noisy = sums + rng.normal(0, std)
            strategy.update(Release(number, "any", noisy, std))
            known = np.linalg.eigvalsh(strategy._steps.covariance)
            assert known[0] > -1e-9 * known[-1]
            assert np.isfinite(strategy.w).all()


def test_a_form_that_noise_makes_worse_refuses_a_budget():
    def make(method: Any, unit: str) -> None:
        method(federation(epsilon=1.0, unit=unit), rows_per_client=50)

    why = "fednewton-vector cannot .* use fednewton, or"
    assert_refused([(FedNewtonVector, unit, why) for unit in UNITS], make)
    assert not FedNewtonVector.needs_rows(federation(epsilon=1.0), {})  # the refusal comes first
