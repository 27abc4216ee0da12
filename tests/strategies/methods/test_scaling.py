"""FedVector, FedMatrix, FedOPVector and FedCal: the step, the bound, the start, both paths."""

from functools import partial

import numpy as np
import pytest

from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.averaging import FedCal, FedMatrix, FedOPVector, FedVector

CLIENTS, CLASSES = 12, 3
METHODS = (FedVector, FedMatrix, FedOPVector, FedCal)
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
federation = partial(Federation, clients=CLIENTS, classes=CLASSES)


def tell(strategy: FederatedStrategy, values: np.ndarray) -> None:
    strategy.update(Release(1, "any", values, np.zeros(len(values))))


@every_method
def test_without_privacy_the_mean_is_over_clients_with_rows(method):
    strategy = method(federation(sampling_rate=0.5), server_lr=0.5)
    start, size = strategy.w.copy(), len(strategy.w)
    ask = strategy.query(1)
    assert ask.lengths() == (size, 1)
    assert ask.params()["count"] is True
    np.testing.assert_array_equal(ask.params()["w"], start)
    tell(strategy, np.append(np.linspace(-1, 1, size), 4.0))
    np.testing.assert_allclose(strategy.w, start - 0.5 * np.linspace(-1, 1, size) / 4, rtol=1e-14)
    np.testing.assert_array_equal(strategy.query(2).params()["w"], strategy.w)
    before = strategy.w.copy()
    tell(strategy, np.zeros(size + 1))  # nobody with rows was asked
    np.testing.assert_array_equal(strategy.w, before)


@every_method
def test_with_privacy_the_divisor_is_public(method):
    rate = 0.25
    strategy = method(federation(epsilon=1.0, sampling_rate=rate, rounds=1), clip=0.25)
    start, size = strategy.w.copy(), len(strategy.w)
    ask = strategy.query(1)
    assert (ask.lengths(), ask.params()["count"]) == ((size,), False)
    bound = strategy.plan.bound
    assert (bound.norms, bound.rule) == ((0.25,), "joint")
    assert strategy.plan.noise_std == pytest.approx((0.25 * strategy.plan.multiplier,))
    tell(strategy, np.full(size, 2.0))
    np.testing.assert_allclose(strategy.w, start - 2.0 / (rate * CLIENTS), rtol=1e-13)


@every_method
def test_no_parameter_leaves_its_box(method):
    strategy = method(federation(epsilon=1.0))
    start = strategy.w.copy()
    tell(strategy, np.full(len(start), 1e9))
    np.testing.assert_array_equal(strategy.w, start - 20.0)
    assert np.isfinite(strategy.result().predict_proba(2 * np.eye(CLASSES))).all()
