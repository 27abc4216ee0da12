"""Averages of clients' updates (FedTemp, FedVector and their kin): the step and its divisor."""

from functools import partial

import numpy as np
import pytest

from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.averaging import FedCal, FedMatrix, FedOPVector, FedTemp, FedVector

CLIENTS, CLASSES = 12, 4
METHODS = (FedVector, FedMatrix, FedOPVector, FedCal)
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
federation = partial(Federation, clients=CLIENTS, classes=CLASSES)


def learn(strategy: FederatedStrategy, values: list[float] | np.ndarray) -> None:
    strategy.update(Release(1, "any", np.array(values), np.zeros(len(values))))


@every_method
def test_without_privacy_the_mean_is_over_clients_with_rows(method):
    strategy = method(federation(sampling_rate=0.5), server_lr=0.5)
    start, size = strategy.w.copy(), len(strategy.w)
    assert strategy.query(1).lengths() == (size, 1)
    assert strategy.query(1).params()["count"] is True
    np.testing.assert_array_equal(strategy.query(1).params()["w"], start)
    learn(strategy, np.append(np.linspace(-1, 1, size), 4.0))
    np.testing.assert_allclose(strategy.w, start - 0.5 * np.linspace(-1, 1, size) / 4, rtol=1e-14)
    np.testing.assert_array_equal(strategy.query(2).params()["w"], strategy.w)
    before = strategy.w.copy()
    learn(strategy, np.zeros(size + 1))  # nobody with rows was asked
    np.testing.assert_array_equal(strategy.w, before)


@every_method
def test_with_privacy_the_divisor_is_public_and_no_parameter_leaves_its_box(method):
    strategy = method(federation(epsilon=1.0, sampling_rate=0.25), clip=0.25)
    start, size = strategy.w.copy(), len(strategy.w)
    assert (strategy.query(1).lengths(), strategy.query(1).params()["count"]) == ((size,), False)
    learn(strategy, np.full(size, 2.0))
    np.testing.assert_allclose(strategy.w, start - 2.0 / (0.25 * CLIENTS), rtol=1e-13)
    learn(strategy, np.full(size, 1e9))
    np.testing.assert_array_equal(strategy.w, start - 20.0)
    assert np.isfinite(strategy.result().predict_proba(2 * np.eye(CLASSES))).all()


@pytest.mark.parametrize(
    ("average", "values", "temperature"),
    [
        ("inverse", [2.0, 4.0], 2.0),
        ("temperature", [-3.0, 2.0], 2.5),
        ("inverse", [0.0, 0.0], 1.0),  # nobody has rows
        ("inverse", [900.0, 9.0], 20.0),  # kept in [1/20, 20]
        ("temperature", [-900.0, 9.0], 20.0),
        ("inverse", [2.0], 1 / (1 - 2.0 / 6)),  # with privacy: by the 6 clients that are expected
        ("temperature", [2.0], 1 - 2.0 / 6),
    ],
)
def test_fedtemp_averages_temperatures_or_their_inverses(average, values, temperature):
    epsilon = 1.0 if len(values) == 1 else np.inf
    strategy = FedTemp(federation(sampling_rate=0.5, epsilon=epsilon), average=average)
    assert strategy.query(1).lengths() == (1,) * len(values)
    learn(strategy, values)
    assert strategy.result().temperature == pytest.approx(temperature, rel=1e-14)
