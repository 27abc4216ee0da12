"""Recalibration by DP-SGD (Zhang et al.), and what ours does for the same budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcal.accounting import gaussian_epsilon
from fedcal.calibrators import (
    Calibrator,
    TemperatureScaling,
    TopLabelLogistic,
    VectorScaling,
)
from fedcal.clients.answers import STATISTICS, answer
from fedcal.errors import InputError, NoEffect
from fedcal.experiments import simulate
from fedcal.experiments.engines.inline import run_inline
from fedcal.numerics import softmax
from fedcal.privacy.federation import Federation
from fedcal.queries import ScalingGradients
from fedcal.queries.request import Request
from fedcal.shards import Shards
from fedcal.strategies import STRATEGIES
from fedcal.types import Floats

ROWS, CLIENTS, CLASSES = 3000, 6, 4
EXACT: dict[str, Any] = {"clients": CLIENTS, "classes": CLASSES}
PRIVATE: dict[str, Any] = {**EXACT, "epsilon": 8.0, "unit": "example"}


def some_rows(seed: int = 0) -> Shards:
    """Over-confident rows: the right temperature is 2.5."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (ROWS, CLASSES))
    y = (softmax(z).cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1).clip(0, CLASSES - 1)
    return Shards.from_owner(2.5 * z, y, np.arange(ROWS) % CLIENTS, CLIENTS)


def learnt(name: str, fields: dict[str, Any], **settings: Any) -> Any:
    shards = some_rows()
    if name.startswith("dp-"):
        settings = {"rows_per_client": ROWS / CLIENTS, **settings}
    make: Any = STRATEGIES[name]
    strategy = make(Federation(**fields), **settings)
    run_inline(strategy, shards)
    return strategy.result()


@pytest.fixture(scope="module")
def pooled() -> dict[str, Calibrator]:
    shards = some_rows()
    kinds = {"dp-ts": TemperatureScaling, "dp-platt": VectorScaling}
    kinds |= {"fednewton-top": TopLabelLogistic}
    return {name: kind().fit(shards.logits, shards.labels) for name, kind in kinds.items()}


def probs(calibrator: Calibrator) -> Floats:
    return calibrator.predict_proba(some_rows(1).logits)


@pytest.mark.parametrize(
    ("name", "near"), [("dp-ts", 1e-3), ("dp-platt", 0.03), ("fednewton-top", 1e-4)]
)
def test_without_privacy_the_pooled_fit_is_reached(
    name: str, near: float, pooled: dict[str, Calibrator]
) -> None:
    """Gradient descent of 100 steps comes near; Newton's method arrives."""
    found = learnt(name, EXACT)
    assert type(found) is type(pooled[name])
    assert np.abs(probs(found) - probs(pooled[name])).max() < near


@pytest.mark.parametrize(
    ("name", "near"), [("dp-ts", 0.02), ("dp-platt", 0.08), ("fednewton-top", 0.05)]
)
def test_with_privacy_of_rows_it_is_still_near(
    name: str, near: float, pooled: dict[str, Calibrator]
) -> None:
    for trust in ("central", "distributed"):
        found = learnt(name, {**PRIVATE, "trust": trust})
        assert np.abs(probs(found) - probs(pooled[name])).max() < near


def test_the_partition_does_not_matter() -> None:
    one, many = some_rows(), some_rows()
    alone = Shards.from_owner(one.logits, one.labels, np.zeros(ROWS, np.int64), 1)
    made: Any = STRATEGIES["dp-ts"]
    found = []
    for shards in (alone, many):
        clients = shards.clients
        strategy = made(
            Federation(clients, CLASSES), rows_per_client=ROWS / clients, clip=1.0, lr=0.2
        )
        run_inline(strategy, shards)
        found.append(strategy.result().temperature)
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_a_gradient_is_that_of_the_loss() -> None:
    shards = some_rows()

    def loss(form: str, w: Floats) -> float:
        if form == "temperature":
            scores = np.log1p(np.exp(w[0])) * shards.logits
        else:
            scores = VectorScaling.scores(shards.logits, w)
        return float(-np.log(softmax(scores)[np.arange(ROWS), shards.labels]).sum())

    for form, w in (
        ("temperature", np.array([-0.4])),
        ("vector", np.array([0.4, 0.5, 0.3, 0.6, 0.1, 0.0, -0.2, 0.0])),
    ):
        query = ScalingGradients(form, w, CLASSES)
        total = STATISTICS[query.kind](shards, query).sum(axis=0)
        for j, step in enumerate(1e-5 * np.eye(len(w))):
            slope = (loss(form, w + step) - loss(form, w - step)) / 2e-5
            assert slope == pytest.approx(total[j], rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("name", ["dp-ts", "dp-platt"])
def test_a_row_is_clipped_and_moves_a_sum_by_no_more(name: str) -> None:
    made: Any = STRATEGIES[name]
    strategy = made(Federation(**PRIVATE), rows_per_client=ROWS / CLIENTS, clip=0.3)
    plan, shards = strategy.plan, some_rows()
    assert (plan.bound.per, plan.bound.norms, plan.diameter) == ("row", (0.3,), 1)
    request = Request(strategy.query(1), plan.bound, plan.ring, 1)
    whole = answer(shards, request).sum(axis=0, dtype=np.uint64)
    for row in (0, 17, ROWS - 1):
        others = answer(shards.keep(np.delete(np.arange(ROWS), row)), request)
        moved = plan.ring.decode(whole - others.sum(axis=0, dtype=np.uint64))
        assert 0 < np.linalg.norm(moved) <= 0.3
    assert plan.noise_std == pytest.approx((0.3 * plan.multiplier,))


@pytest.mark.parametrize("off", [1.0, 2 / 3, 3 / 2])
def test_the_noise_is_what_the_budget_asks_for(off: float) -> None:
    """Of released sums over nobody: two thirds of it would spend more, half more of it less."""
    nobody = some_rows().keep(np.zeros(0, np.int64))
    for name, settings in (("dp-platt", {"rows_per_client": 9.0}), ("fednewton-top", {})):
        make: Any = STRATEGIES[name]
        strategy = make(Federation(**PRIVATE, rounds=60), **settings)
        run_inline(strategy, nobody)
        bound = strategy.plan.bound
        drawn = np.stack([release.values / bound.scale for release in strategy.releases])
        found = off * float(np.sqrt((drawn**2).mean()))  # in units of what a row may add
        enough = gaussian_epsilon(1e-5, 1.15 * found, 60) <= 8.0
        wasted = gaussian_epsilon(1e-5, 0.85 * found, 60) <= 8.0
        assert (enough, wasted) == (off >= 1, off > 1), name


def test_public_numbers_are_asked_for_and_what_does_nothing_is_refused() -> None:
    make: Any = STRATEGIES["dp-ts"]
    with pytest.raises(InputError, match="dp-ts needs rows_per_client"):
        make(Federation(**PRIVATE))
    assert make(Federation(**PRIVATE), rows_per_client=10).plan.rounds == 100
    assert make(Federation(**PRIVATE, rounds=7), rows_per_client=10).plan.rounds == 7
    with pytest.raises((InputError, NoEffect)):
        make(Federation(**PRIVATE), rows_per_client=10, clip=0.0)


@pytest.mark.parametrize("name", ["dp-ts", "dp-platt", "fednewton-top"])
def test_on_a_shipped_set_the_calibration_error_falls(name: str) -> None:
    done = simulate("resnet110-cifar10", method=name, epsilon=8.0, unit="example")
    assert done.after["ece"] < 0.6 * done.before["ece"]
    if name != "dp-platt":
        assert done.after["accuracy"] == done.before["accuracy"]


def test_a_run_goes_on_from_its_releases() -> None:
    make: Any = STRATEGIES["dp-ts"]

    def fresh() -> Any:
        return make(Federation(**PRIVATE, rounds=6), rows_per_client=ROWS / CLIENTS)

    whole, again = fresh(), fresh()
    run_inline(whole, some_rows())
    assert whole.state() is None
    again.resume("first", whole.releases[:4])
    run_inline(again, some_rows())
    assert again.result().temperature == whole.result().temperature
