"""FedSGD, DP-SGD recalibration, FedAvg and DP-FedAvg: noise, steps by hand, bounded updates."""

from typing import Any

import numpy as np
import pytest
import torch
from strategy_checks import assert_std_is_one, nobody

from fedcal.accounting import gaussian_multiplier
from fedcal.calibrators import TemperatureScaling, VectorScaling
from fedcal.clients.answers import answer, contribute
from fedcal.clients.questions.training import LocalUpdate
from fedcal.core.checks import ContributionRefused, InputError
from fedcal.core.numerics import Floats, Purpose, softmax, stream
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy import Federation
from fedcal.privacy.curator import Release
from fedcal.privacy.query import Request
from fedcal.run.engines.inline import run_inline
from fedcal.secure_aggregation import Ring
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.training import DPFedAvg, FedAvg, FedSGD
from fedcal.training.networks import NETWORKS, LocalSGD
from fedcal.units import Bound

ROWS, WIDTH, CLASSES, CLIENTS = 600, 5, 3, 20


def rows(clients: int, n: int = ROWS) -> Shards:
    """Each class has a mean of its own; the last of several clients has no rows."""
    rng = np.random.default_rng(4)
    x = rng.normal(0, 0.5, (n, WIDTH))
    y = (x[:, :CLASSES] + rng.gumbel(0, 0.2, (n, CLASSES))).argmax(axis=1)
    owner = rng.integers(0, max(1, clients - 1), n)
    return rows_by_owner(np.zeros((n, CLASSES)), y, owner, clients, inputs=x)


def federation(clients: int = 1, **change: Any) -> Federation:
    known: dict[str, Any] = {"clients": clients, "classes": CLASSES, "unit": "example"}
    return Federation(**known | change)


def fedsgd(clients: int = 1, federate: dict[str, Any] | None = None, **settings: Any) -> FedSGD:
    known: dict[str, Any] = {"shape": str(WIDTH), "batch": 60.0, "rows_per_client": ROWS / clients}
    return FedSGD(federation(clients, **(federate or {})), **known | settings)


def decoded(words: Any) -> Floats:
    return np.asarray(words).view(np.int64) * 2.0**-24


# --- FedSGD ---------------------------------------------------------------------------------------


def test_the_noise_is_that_of_sampled_rows():
    plan = fedsgd(3, {"epsilon": 2.0}, epochs=4.0, clip=0.7).plan
    assert (plan.rounds, plan.row_rate) == (40, pytest.approx(0.1))
    assert plan.noise_std == (pytest.approx(0.7 * plan.multiplier),)
    assert plan.multiplier == gaussian_multiplier(2.0, 1e-5, 40, plan.row_rate)
    clients = fedsgd(3, {"epsilon": 2.0, "unit": "user"}, epochs=4.0, batch=None).plan
    assert (clients.row_rate, clients.rounds) == (1.0, 4)  # of clients all rows take part
    assert clients.multiplier == gaussian_multiplier(2.0, 1e-5, 4)


def test_a_step_is_by_the_sum_over_the_rows_that_are_expected():
    """Half of the clients and half of a batch; v = m v + g, step -lr v, with lr 1, 2/3, 1/3 of it.

    The divisor is public: what is expected to take part, not what did.
    """
    half = {"unit": "user", "sampling_rate": 0.5, "rounds": 3}
    own = {"lr": 0.3, "schedule": "linear", "momentum": 0.5, "weight_decay": 0.1}
    strategy = fedsgd(4, half, batch=200.0, **own)
    w, v = strategy.w.copy(), np.zeros(strategy.w.size)
    for number, share in enumerate((1, 2 / 3, 1 / 3), 1):
        values = np.linspace(-1.0, 2.0 * number, w.size)
        v = 0.5 * v + values / 100 + 0.1 * w
        w = w - 0.3 * share * v
        strategy.update(Release(number, "any", values, np.zeros(w.size)))
        np.testing.assert_allclose(strategy.w, w, rtol=1e-12)


def test_adam_steps_as_that_of_torch():
    method = fedsgd(1, {"rounds": 3}, optimiser="adam", lr=0.3)
    w = torch.nn.Parameter(torch.tensor(method.w))
    peer = torch.optim.Adam([w], lr=0.3)
    for number in (1, 2, 3):
        values = np.linspace(-1.0, number, len(method.w))
        w.grad = torch.tensor(values / 60)
        peer.step()
        method.update(Release(number, "any", values, np.zeros(values.size)))
        resumed = fedsgd(1, {"rounds": 3}, optimiser="adam", lr=0.3)
        state = method.state()
        if number == 2:  # as the version before saved it
            state |= {"moments": state.pop("velocity"), "steps": np.array([2.0])}
        resumed.restore("any", state)
        np.testing.assert_allclose(resumed.w, w.detach(), rtol=1e-12)
        method = resumed


@pytest.mark.parametrize("half", [{}, {"unit": "user", "sampling_rate": 0.5, "rounds": 3}])
def test_langevin_steps_follow_from_the_noise(half):
    """The noise of a step has std sqrt(2 h), h the step on the sum of the rows' losses."""
    more = {"batch": None} if half else {}
    strategy = fedsgd(2, {"epsilon": 2.0, **half}, optimiser="sgld", clip=0.3, **more)
    expected = strategy.batch_rows * strategy.plan.federation.sampling_rate
    of_step = strategy.step_size * strategy.plan.noise_std[0] / expected
    assert of_step == pytest.approx(np.sqrt(2 * strategy.step_size / ROWS))


@pytest.mark.parametrize(
    ("change", "own", "message"),
    [
        ({}, {"optimiser": "sgld"}, "it needs epsilon"),
        ({"epsilon": 2.0}, {"optimiser": "sgld", "lr": 0.1}, "takes its step from the noise"),
        ({}, {"optimiser": "adam", "momentum": 0.5}, "has none"),
    ],
)
def test_an_optimiser_refuses_what_it_does_not_use(change, own, message):
    with pytest.raises(InputError, match=message):
        fedsgd(1, change, **own)


def test_the_grid_of_much_noise_is_one_that_can_be_drawn():
    much = {"unit": "user", "epsilon": 0.3, "noise_source": "system"}
    plan = fedsgd(3, much, batch=None, epochs=300.0).plan
    assert plan.multiplier > 100  # of 2^36 steps in a norm: more than the samplers draw
    assert 2.0**39 < max(plan.noise.scales) <= 2.0**40


def test_a_sum_that_nothing_bounds_is_not_cut_in_silence():
    query = fedsgd().query(1)
    exact = Bound(query.lengths())
    assert query.row_words(rows(1), exact, Ring(1, 2.0**-36)) is not None
    with pytest.raises(ContributionRefused, match="does not fit the ring"):
        query.row_words(rows(1), exact, Ring(2**22, 2.0**-36))


def test_rounds_without_rows_release_noise_of_the_plan_s_size():
    """Empty Poisson batches are steps like all others (Opacus #161, #631)."""
    own: Any = {"network": "mlp", "rows_per_client": 500.0, "batch": 64.0}
    train = fedsgd(2, {"epsilon": 8.0}, epochs=0.5, **own)
    seen = []
    train.on_release = lambda release: seen.append(release.values)
    run_inline(train, nobody(2, inputs=np.zeros((0, WIDTH))))
    assert len(seen) == train.plan.rounds == 8
    assert_std_is_one([values / train.plan.multiplier for values in seen])  # the clip is 1


# --- recalibration by DP-SGD (Zhang et al.) -------------------------------------------------------


def overconfident(seed: int = 0) -> Shards:
    """Rows whose right temperature is 2.5."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (3000, 4))
    y = (softmax(z).cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1).clip(0, 3)
    return rows_by_owner(2.5 * z, y, np.arange(3000) % 6, 6)


@pytest.mark.parametrize(
    ("name", "form", "near", "noisy"),
    [("dp-ts", TemperatureScaling, 1e-3, 0.02), ("dp-platt", VectorScaling, 0.03, 0.08)],
)
def test_the_pooled_fit_is_reached_or_with_privacy_nearly(name, form, near, noisy):
    """Gradient descent of 100 steps comes near."""
    shards, others = overconfident(), overconfident(1).logits
    make: Any = STRATEGIES[name]
    pooled = form().fit(shards.logits, shards.labels).predict_proba(others)
    for epsilon, most in ((np.inf, near), (8.0, noisy)):
        own = Federation(6, 4, epsilon=epsilon, unit="example")
        found: Any = run_inline(make(own, rows_per_client=500), shards)
        assert type(found) is form
        assert np.abs(found.predict_proba(others) - pooled).max() < most


# --- updates of whole clients ---------------------------------------------------------------------


def query_of(w: Floats, **changed: Any) -> LocalUpdate:
    usual = {"epochs": 2, "batch": 8, "lr": 0.2, "clip": 0.5, "seed": 1}
    return LocalUpdate("softmax", str(WIDTH), w, **(usual | changed), classes=CLASSES)


def request_of(query: LocalUpdate) -> Request:
    return Request(query, Bound(query.lengths()), Ring(CLIENTS, 2.0**-24), 1)


def test_the_update_is_that_of_plain_sgd():
    """One batch of all rows, by hand: their order does not matter."""
    own, w = rows(2), NETWORKS["softmax"].initial((WIDTH,), CLASSES, 0)
    x, n = np.asarray(own.inputs), len(own.labels)
    query = query_of(w, epochs=1, batch=10**6, clip=100.0)
    (sent, nothing) = contribute(own, request_of(query), np.arange(2))
    found = decoded(sent) * 100.0
    p = np.exp(x @ w[: CLASSES * WIDTH].reshape(CLASSES, WIDTH).T)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(n), own.labels] -= 1
    step = -0.2 / n * p.T @ np.hstack([x, np.ones((n, 1))])
    np.testing.assert_allclose(found, np.append(step[:, :-1], step[:, -1]), atol=1e-4)
    assert not nothing.any()


def test_an_update_lies_within_the_bound():
    own, w = rows(CLIENTS), NETWORKS["softmax"].initial((WIDTH,), CLASSES, 0)
    norms = np.linalg.norm(decoded(answer(own, request_of(query_of(w, clip=1e-3)))), axis=1)
    assert norms.max() <= 1.0
    assert norms[:-1].min() > 0.999
    values = decoded(answer(own, request_of(query_of(w, lr=1e30))))  # diverges
    assert np.isfinite(values).all()
    assert np.linalg.norm(values, axis=1).max() <= 1.0


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_step_is_by_the_mean_over_the_clients_that_are_expected():
    """A quarter of 20 clients is 5, whoever answers. No noisy sum fails a round, however large."""
    quarter = Federation(CLIENTS, CLASSES, rounds=2, sampling_rate=0.25, epsilon=1.0)
    method = DPFedAvg(quarter, shape=str(WIDTH), server_lr=0.7, momentum=0.5, clip=2.0)
    w, v = method.w.copy(), np.zeros(method.w.size)
    for number in (1, 2, *[1e308] * 5):
        values = np.linspace(-1.0, number, w.size)
        v = 0.5 * v + 2.0 * (values / 5)
        w = np.nan_to_num(w + 0.7 * v)
        method.update(Release(number, "any", values, np.zeros(values.size)))
        np.testing.assert_allclose(method.w, w, rtol=1e-12)


def test_fedavg_steps_by_the_mean_of_its_cohort_weighted_by_rows():
    """By hand: half of 4 clients in each round, each with an order of rows of its own."""
    own, network = rows(4).ordered, NETWORKS["softmax"]
    half = Federation(clients=4, classes=CLASSES, rounds=2, sampling_rate=0.5)
    method = FedAvg(half, shape=str(WIDTH), batch=8, server_lr=0.5)
    w, x = method.w, np.asarray(own.inputs)
    for number in (1, 2):
        asked = method.open_round(number)
        assert asked is not None
        updates, losses, sizes = [], [], own.rows[asked.clients]
        for k in asked.clients.tolist():
            mine, rng = own.owner == k, stream(0, Purpose.SAMPLING, number, f"batches of {k}")
            sgd = LocalSGD(1, 8, 0.1)
            update = network.local_update(w, x[mine], own.labels[mine], CLASSES, sgd, rng)
            updates.append(update[0])
            losses.append(update[1])
        w = w + 0.5 * np.average(updates, axis=0, weights=sizes)
        words = contribute(own.take(asked.clients), asked.request, asked.clients)
        method.charge_round(asked, 2)
        method.close_round(asked, words.sum(axis=0, dtype=np.uint64))
        np.testing.assert_allclose(method.w, w, atol=1e-7)
        loss = pytest.approx(np.average(losses, weights=sizes), abs=1e-6)
        assert method.round_record(number) == {"train_loss": loss}
