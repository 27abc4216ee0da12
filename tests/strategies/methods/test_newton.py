"""Newton with several parameters: the pooled optimum, the filter, the bound, both paths."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_refused

from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.newton import FedNewtonEntropy, FedNewtonVector, symmetric
from fedcal.units import UNITS

CLIENTS, CLASSES = 12, 3
METHODS = (FedNewtonEntropy, FedNewtonVector)
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
federation = partial(Federation, clients=CLIENTS, classes=CLASSES)


def rows(n: int = 600, classes: int = CLASSES, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident where they are uncertain, more than where they are sure."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes))
    p = softmax(logits * np.where(np.abs(logits).max(axis=1) > 3, 0.8, 0.5)[:, None])
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return logits, np.minimum(labels, classes - 1)


def dealt(owner: np.ndarray | None = None) -> Shards:
    """The first client has none, where nothing is said."""
    logits, labels = rows()
    if owner is None:
        owner = 1 + np.arange(len(labels)) % (CLIENTS - 1)
    return Shards.from_owner(logits, labels, owner, CLIENTS)


def loss(probs: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probs[np.arange(len(labels)), labels]).mean())


@every_method
def test_any_partition_reaches_the_pooled_optimum(method):
    logits, labels = rows()
    pooled = loss(method.form().fit(logits, labels).predict_proba(logits), labels)
    assert pooled < loss(softmax(logits), labels) - 0.01
    for owner in (np.arange(len(labels)) % CLIENTS, labels, 0 * labels):
        strategy = method(federation())
        run_inline(strategy, dealt(owner))
        assert loss(strategy.result().predict_proba(logits), labels) <= pooled + 1e-6


def updated(strategy: Any, g: list[float], h: list[float]) -> Any:
    """The step that a release without noise makes it take."""
    before = strategy.w.copy()
    strategy.update(Release(1, "any", np.array([*g, *h]), np.zeros(5)))
    return strategy.w - before


def test_a_long_step_is_cut_to_the_radius_but_not_where_much_is_known():
    step = updated(FedNewtonEntropy(federation()), [40.0, 1e-3], [1e4, 0.0, 1e-5])
    assert step[0] == pytest.approx(-4e-3, rel=1e-2)  # Newton's own, though the other one is cut
    assert step[1] == pytest.approx(-0.7, rel=1e-6)


def test_steps_grow_where_the_curvature_foretold_the_gradient():
    for gradients, want in (
        ((9.0, 8.3, 6.9), [-0.7, -1.4, -2.8]),  # 9 - 0.7, and 8.3 - 1.4
        ((9.0, 5.0), [-0.7, -0.7]),  # not what was foretold
    ):
        strategy = FedNewtonEntropy(federation())
        steps = [updated(strategy, [g, 0.0], [1.0, 0.0, 1.0])[0] for g in gradients]
        assert steps == pytest.approx(want)


def test_a_step_that_went_too_far_is_halved_or_taken_back():
    far = FedNewtonEntropy(federation())
    assert [updated(far, [g, 0.0], [1e-3, 0.0, 1e-3])[0] for g in (9.0, -6.0)] == pytest.approx(
        [-0.7, 0.35]
    )
    too_far = FedNewtonEntropy(federation())
    updated(too_far, [9.0, 0.0], [1.0, 0.0, 1.0])
    updated(too_far, [-9.0, 0.0], [1.0, 0.0, 1.0])  # as steep up as down: no lower than before
    assert too_far.w[0] == pytest.approx(-0.7 / 4)


def test_a_round_in_which_nobody_was_asked_does_not_stop_the_way():
    strategy = FedNewtonEntropy(federation(sampling_rate=0.1))
    assert not updated(strategy, [0.0, 0.0], [0.0, 0.0, 0.0]).any()
    step = updated(strategy, [0.2, 0.0], [2.0, 0.0, 1.0])
    assert step == pytest.approx([-0.1, 0.0], rel=1e-6)
    assert not updated(strategy, [0.0, 0.0], [0.0, 0.0, 0.0]).any()
    assert updated(strategy, [0.2, 0.0], [2.0, 0.0, 1.0]) == pytest.approx(step, rel=1e-6)


def private(std: float) -> FedNewtonEntropy:
    """After one release that says w = (-0.6, 0.3), with this noise in G; none in H."""
    strategy = FedNewtonEntropy(federation(epsilon=1.0), rows_per_client=50)
    g = symmetric(np.array([100.0, 10.0, 20.0]), 2) @ [0.6, -0.3]
    stds = np.array([std, std, 1e-9, 1e-9, 1e-9])
    strategy.update(Release(1, "any", np.concatenate([g, [100.0, 10.0, 20.0]]), stds))
    return strategy


def test_little_noise_is_newtons_step_and_much_noise_is_none():
    np.testing.assert_allclose(private(1e-6).w, [-0.6, 0.3], rtol=1e-6)
    assert np.abs(private(1e6).w).max() < 1e-6
    slopes = [float(private(std).w[1]) for std in (1.0, 10.0, 30.0, 100.0)]
    assert slopes == sorted(slopes, reverse=True)  # the less is known, the nearer to temperature
    assert abs(private(30.0).w[0]) > 10 * abs(private(30.0).w[1])


def test_what_is_known_stays_a_covariance_whatever_clients_send():
    """All of 20,000 clients at the bound: G all the way in one direction, H anything."""
    for seed, epsilon in enumerate((1e-3, 1e-3, 1e3, 1e3, 1e9, 1e9)):
        rng = np.random.default_rng(seed)
        own = federation(clients=20_000, epsilon=epsilon, rounds=8)
        strategy = FedNewtonEntropy(own, rows_per_client=5)
        plan, size = strategy.plan, len(strategy.w)
        std = plan.bound.scale * plan.multiplier
        for number in range(1, 9):
            sums = 20_000 * plan.bound.scale / math.sqrt(2 * size)
            sums[size:] *= rng.uniform(0, seed % 2, len(sums) - size)
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
