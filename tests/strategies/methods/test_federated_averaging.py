"""DP-FedAvg: what clients send is bounded and theirs alone; the clip follows the updates."""

from typing import Any

import numpy as np
import pytest

from fedcal.clients.answers import answer, contribute
from fedcal.clients.questions.training import LocalUpdate
from fedcal.core.numerics import Floats, Purpose, stream
from fedcal.core.shards import Shards
from fedcal.privacy.curator import Release
from fedcal.privacy.privacy import Federation
from fedcal.privacy.query import Request
from fedcal.secure_aggregation import Ring
from fedcal.strategies.methods.training import DPFedAvg, FedAvg
from fedcal.training.networks import NETWORKS, LocalSGD
from fedcal.units import Bound, bounded

CLASSES, FEATURES, CLIENTS = 3, 4, 20


def shards(clients: int = CLIENTS, rows: int = 30, seed: int = 0) -> Shards:
    """Each class has a mean of its own; the last client has no rows."""
    rng = np.random.default_rng(seed)
    n = clients * rows
    labels = rng.integers(0, CLASSES, n)
    inputs = rng.normal(size=(n, FEATURES)) + 2 * np.eye(CLASSES, FEATURES)[labels]
    owner = np.arange(n) % (clients - 1)
    return Shards.from_owner(np.zeros((n, CLASSES)), labels, owner, clients, inputs=inputs)


def query(network: str, w: Floats, **changed: Any) -> LocalUpdate:
    usual = {"epochs": 2, "batch": 8, "lr": 0.2, "clip": 0.5, "count": True, "seed": 1}
    return LocalUpdate(network, str(FEATURES), w, **(usual | changed), classes=CLASSES)


def start(network: str) -> Floats:
    return NETWORKS[network].initial((FEATURES,), CLASSES, 0)


def request_of(asked: LocalUpdate) -> Request:
    return Request(asked, Bound(asked.lengths()), Ring(CLIENTS, 2.0**-24), 1)


def test_the_update_is_that_of_plain_sgd():
    """One batch of all rows, by hand: their order does not matter."""
    own, w = shards(2), start("softmax")
    x, n = np.asarray(own.inputs), len(own.labels)
    asked = query("softmax", w, epochs=1, batch=10**6, clip=100.0)
    (sent, nothing) = contribute(own, request_of(asked), np.arange(2))
    found = sent.view(np.int64)[:-1] * 2.0**-24 * 100.0
    with_one = np.hstack([x, np.ones((n, 1))])
    p = np.exp(x @ w[: CLASSES * FEATURES].reshape(CLASSES, FEATURES).T)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(n), own.labels] -= 1
    step = -0.2 / n * p.T @ with_one
    np.testing.assert_allclose(found, np.append(step[:, :-1], step[:, -1]), atol=1e-4)
    assert not nothing.any()


@pytest.mark.parametrize("network", ["softmax", "mlp"])
def test_a_client_sends_the_same_whoever_is_asked_and_within_the_bound(network):
    own, w = shards(), start(network)
    for clip in (1e-3, 1e3):
        asked = query(network, w, clip=clip)
        words = answer(own, request_of(asked))
        some = np.array([3, 7, CLIENTS - 1])
        np.testing.assert_array_equal(answer(own.take(some), request_of(asked)), words[some])
        values = words.view(np.int64) * 2.0**-24
        norms = np.linalg.norm(values[:, :-1], axis=1)
        assert norms.max() <= 1.0
        assert not words[-1].any()  # no rows
        np.testing.assert_array_equal(values[:-1, -1], 0.5 if clip == 1e3 else -0.5)
        assert clip == 1e3 or norms[:-1].min() > 0.999
        np.testing.assert_allclose(bounded(values, asked.bound("client")), values, rtol=1e-9)
    diverges = query(network, w, lr=1e30)
    values = answer(own, request_of(diverges)).view(np.int64) * 2.0**-24
    assert np.isfinite(values).all()
    assert np.linalg.norm(values[:, :-1], axis=1).max() <= 1.0


def test_a_step_is_by_the_mean_over_the_clients_that_are_expected():
    """Of a quarter of 20 clients: 5, whoever answers; the clip's logarithm falls by 0.2 a share."""
    federation = Federation(clients=20, classes=CLASSES, rounds=2, sampling_rate=0.25)
    own: Any = {"server_lr": 0.7, "momentum": 0.5, "clip": 2.0, "unclipped": 0.4}
    method = DPFedAvg(federation, shape=str(FEATURES), **own)
    w, v, clip = method.w.copy(), np.zeros(method.w.size), 2.0
    for number, within in enumerate((1.5, -1.0), 1):  # 1/2 and -1/2 of each client
        values = np.append(np.linspace(-1.0, number, w.size), within)
        v = 0.5 * v + clip * values[:-1] / 5
        w, clip = w + 0.7 * v, clip * np.exp(-0.2 * (0.5 + within / 5 - 0.4))
        method.update(Release(number, "any", values, np.zeros(values.size)))
        np.testing.assert_allclose(method.w, w, rtol=1e-12)
        assert method.current_clip == pytest.approx(clip)


def test_fedavg_steps_by_the_mean_of_its_cohort_weighted_by_rows():
    """By hand: half of 4 clients in each round, each with an order of rows of its own."""
    own, network = shards(4).ordered, NETWORKS["softmax"]
    federation = Federation(clients=4, classes=CLASSES, rounds=2, sampling_rate=0.5)
    method = FedAvg(federation, shape=str(FEATURES), batch=8, server_lr=0.5)
    w, x = method.w, np.asarray(own.inputs)
    for number in (1, 2):
        asked = method.open_round(number)
        assert asked is not None
        updates, losses, sizes = [], [], own.rows[asked.clients]
        for k in asked.clients.tolist():
            rows, rng = own.owner == k, stream(0, Purpose.SAMPLING, number, f"batches of {k}")
            sgd = LocalSGD(1, 8, 0.1)
            update = network.local_update(w, x[rows], own.labels[rows], CLASSES, sgd, rng)
            updates.append(update[0])
            losses.append(update[1])
        w = w + 0.5 * np.average(updates, axis=0, weights=sizes)
        words = contribute(own.take(asked.clients), asked.request, asked.clients)
        method.charge_round(asked, 2)
        method.close_round(asked, words.sum(axis=0, dtype=np.uint64))
        np.testing.assert_allclose(method.w, w, atol=1e-7)
        loss = pytest.approx(np.average(losses, weights=sizes), abs=1e-6)
        assert method.round_record(number) == {"clients": 2, "train_loss": loss}
