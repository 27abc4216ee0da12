"""Recalibration by DP-SGD (Zhang et al.)."""

from typing import Any

import numpy as np
import pytest
from strategy_checks import nobody

from fedcal.accounting import gaussian_epsilon
from fedcal.calibrators import Calibrator, TemperatureScaling, VectorScaling
from fedcal.core.numerics import Floats, softmax
from fedcal.core.shards import Shards
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.training import DPPlatt

ROWS, CLIENTS, CLASSES = 3000, 6, 4
EXACT: dict[str, Any] = {"clients": CLIENTS, "classes": CLASSES}
PRIVATE: dict[str, Any] = {**EXACT, "epsilon": 8.0, "unit": "example"}


def some_rows(seed: int = 0) -> Shards:
    """Over-confident rows: the right temperature is 2.5."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (ROWS, CLASSES))
    y = (softmax(z).cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1).clip(0, CLASSES - 1)
    return Shards.from_owner(2.5 * z, y, np.arange(ROWS) % CLIENTS, CLIENTS)


def learnt(name: str, fields: dict[str, Any]) -> Any:
    shards = some_rows()
    make: Any = STRATEGIES[name]
    strategy = make(Federation(**fields), rows_per_client=ROWS / CLIENTS)
    run_inline(strategy, shards)
    return strategy.result()


def probs(calibrator: Calibrator) -> Floats:
    return calibrator.predict_proba(some_rows(1).logits)


@pytest.mark.parametrize(
    ("name", "kind", "near", "noisy"),
    [
        ("dp-ts", TemperatureScaling, 1e-3, 0.02),
        ("dp-platt", VectorScaling, 0.03, 0.08),
    ],
)
def test_the_pooled_fit_is_reached_or_with_privacy_nearly(name, kind, near, noisy):
    """Gradient descent of 100 steps comes near."""
    shards = some_rows()
    pooled = probs(kind().fit(shards.logits, shards.labels))
    exact = learnt(name, EXACT)
    assert type(exact) is kind
    assert np.abs(probs(exact) - pooled).max() < near
    for trust in ("central", "distributed"):
        assert np.abs(probs(learnt(name, {**PRIVATE, "trust": trust})) - pooled).max() < noisy


def test_the_noise_is_what_the_budget_asks_for():
    """Of released sums over nobody: two thirds of it would spend more, half more of it less."""
    strategy = DPPlatt(Federation(**PRIVATE, rounds=60), rows_per_client=9.0)
    run_inline(strategy, nobody(CLIENTS, CLASSES))
    drawn = [release.values / strategy.plan.bound.scale for release in strategy.releases]
    released = float(np.sqrt(np.square(drawn).mean()))  # in units of what a row may add
    for off in (2 / 3, 1.0, 3 / 2):
        enough = gaussian_epsilon(1e-5, 1.15 * off * released, 60) <= 8.0
        wasted = gaussian_epsilon(1e-5, 0.85 * off * released, 60) <= 8.0
        assert (enough, wasted) == (off >= 1, off > 1)
