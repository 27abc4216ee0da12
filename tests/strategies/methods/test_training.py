"""Training by fedsgd: noise for the sampled rows, the same steps however rows are dealt."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_std_is_one, nobody

from fedcal.accounting import gaussian_multiplier, poisson_gaussian_epsilon
from fedcal.clients.answers import answer, contribute
from fedcal.clients.questions.training import Gradients
from fedcal.core.checks import ContributionRefused
from fedcal.core.shards import Shards
from fedcal.privacy import Federation
from fedcal.privacy.curator import OpenRound, Release
from fedcal.privacy.query import Request
from fedcal.run.engines.inline import run_inline
from fedcal.secure_aggregation import Ring
from fedcal.strategies.methods.training import FedSGD
from fedcal.training.networks import NETWORKS
from fedcal.training.optimisers import scheduled
from fedcal.units import Bound

ROWS, WIDTH, CLASSES = 600, 5, 3


def rows(clients: int, n: int = ROWS) -> Shards:
    rng = np.random.default_rng(4)
    x = rng.normal(0, 0.5, (n, WIDTH))
    y = (x[:, :CLASSES] + rng.gumbel(0, 0.2, (n, CLASSES))).argmax(axis=1)
    owner = rng.integers(0, clients, n)
    return Shards.from_owner(np.zeros((n, CLASSES)), y, owner, clients, inputs=x)


def federation(clients: int = 1, **change: Any) -> Federation:
    known: dict[str, Any] = {"clients": clients, "classes": CLASSES, "unit": "example"}
    return Federation(**known | change)


def method(clients: int = 1, federate: dict[str, Any] | None = None, **settings: Any) -> FedSGD:
    known: dict[str, Any] = {"shape": str(WIDTH), "batch": 60.0, "rows_per_client": ROWS / clients}
    return FedSGD(federation(clients, **(federate or {})), **known | settings)


def test_the_noise_is_that_of_sampled_rows():
    plan = method(3, {"epsilon": 2.0}, epochs=4.0, clip=0.7).plan
    assert plan.rounds == 40
    assert plan.row_rate == pytest.approx(0.1)
    assert plan.multiplier == gaussian_multiplier(2.0, 1e-5, 40, plan.row_rate)
    assert plan.noise_std == (pytest.approx(0.7 * plan.multiplier),)
    spent = [
        poisson_gaussian_epsilon(1e-5, plan.multiplier * f, 40, plan.row_rate)
        for f in (2 / 3, 1, 3 / 2)
    ]
    assert spent[0] > 2.0 * 1.2
    assert 2.0 * 0.999 < spent[1] <= 2.0
    assert spent[2] < 2.0 / 1.2
    whole = method(3, {"epsilon": 2.0, "unit": "user"}, epochs=4.0, batch=None).plan
    assert (whole.row_rate, whole.rounds) == (1.0, 4)  # of whole clients all rows take part
    assert whole.multiplier == gaussian_multiplier(2.0, 1e-5, 4)


def test_each_row_takes_part_by_its_own_coin():
    shards, strategy = rows(7), method(7, {"epsilon": 4.0}, clip=10.0, batch=120.0)
    shards = replace(shards, labels=np.zeros(ROWS, np.int64))
    counts = []
    for number in range(1, 30):
        asked = strategy.open_round(number)
        assert isinstance(asked, OpenRound)
        words = contribute(shards, asked.request, np.arange(7))
        total = words.sum(axis=0, dtype=np.uint64)
        # at w = 0 every row adds 1/3 - 1 to the bias of class 0
        bias = float(total.view(np.int64)[WIDTH * CLASSES]) * asked.request.ring.grid
        counts.append(-1.5 * bias)
        strategy.charge_round(asked, 7)
        strategy.close_round(asked, total)
        strategy.w = np.zeros_like(strategy.w)
    np.testing.assert_allclose(counts, np.round(counts), atol=0.1)
    assert len(set(counts)) > 10
    assert abs(np.mean(counts) - 120) < 4 * np.sqrt(120 * 0.8 / 29)
    assert 0.4 < np.var(counts) / (120 * 0.8) < 2.2


def test_a_step_is_by_the_sum_over_the_rows_that_are_expected():
    """Of half of the clients half of a batch; v = m v + g, step -lr v, with lr 1, 2/3, 1/3 of it.

    The divisor is public: what is expected to take part, not what did.
    """
    half = {"unit": "user", "sampling_rate": 0.5, "rounds": 3}
    own = {"lr": 0.3, "schedule": "linear", "momentum": 0.5, "weight_decay": 0.1}
    strategy = method(4, half, batch=200.0, **own)
    w, v = strategy.w.copy(), np.zeros(strategy.w.size)
    for number, share in enumerate((1, 2 / 3, 1 / 3), 1):
        values = np.linspace(-1.0, 2.0 * number, w.size)
        v = 0.5 * v + values / 100 + 0.1 * w
        w = w - 0.3 * share * v
        strategy.update(Release(number, "any", values, np.zeros(w.size)))
        np.testing.assert_allclose(strategy.w, w, rtol=1e-12)


def test_the_grid_of_much_noise_is_one_that_can_be_drawn():
    much = {"unit": "user", "epsilon": 0.3, "noise_source": "system"}
    plan = method(3, much, batch=None, epochs=300.0).plan
    assert plan.multiplier > 100  # of 2^36 steps in a norm: more than the samplers draw
    assert 2.0**39 < max(plan.noise.scales) <= 2.0**40


def test_a_sum_that_nothing_bounds_is_not_cut_in_silence():
    query = method().query(1)
    exact = Bound(query.lengths())
    assert query.row_words(rows(1), exact, Ring(1, 2.0**-36)) is not None
    with pytest.raises(ContributionRefused, match="does not fit the ring"):
        query.row_words(rows(1), exact, Ring(2**22, 2.0**-36))


def test_the_last_step_of_a_linear_schedule_is_one_part_of_the_first():
    assert [scheduled("linear", k, 4) for k in (1, 2, 3, 4)] == [1.0, 0.75, 0.5, 0.25]
    assert [scheduled("constant", k, 4) for k in (1, 4)] == [1.0, 1.0]


def test_langevin_steps_follow_from_the_noise():
    """The noise of a step has std sqrt(2 h), h the step on the sum of the rows' losses."""
    strategy = method(1, {"epsilon": 2.0}, optimiser="sgld", clip=0.3)
    of_step = strategy.step_size * strategy.plan.noise_std[0] / strategy.batch_rows
    assert of_step == pytest.approx(np.sqrt(2 * strategy.step_size / ROWS))


@pytest.mark.parametrize("clipping", ["row", "global"])
def test_federated_sums_are_the_pooled_ones_and_of_the_multiset_of_rows(clipping):
    own = rows(7, 90)
    w = NETWORKS["mlp"].initial((5,), CLASSES, 1)
    query = Gradients("mlp", "5", w, 0.5, clipping, 2.0, classes=CLASSES)
    bound = replace(query.bound("row"), per="row")
    request = Request(query, bound, Ring(7, 2.0**-36), 1)
    each = answer(own, request)
    order = np.lexsort((np.random.default_rng(0).random(90), own.owner))
    other = Shards.from_owner(
        own.logits, own.labels[order], own.owner, 7, inputs=np.asarray(own.inputs)[order]
    )
    np.testing.assert_array_equal(answer(other, request), each)  # permuted at each client
    np.testing.assert_array_equal(answer(own.take(np.array([5, 2])), request), each[[5, 2]])
    pooled = Shards.from_owner(own.logits, own.labels, np.zeros(90, int), 1, inputs=own.inputs)
    total = each.sum(axis=0, dtype=np.uint64).view(np.int64) * 2.0**-36
    np.testing.assert_allclose(
        total, answer(pooled, request)[0].view(np.int64) * 2.0**-36, atol=1e-5
    )
    by_row = answer(pooled.each_row(), request)
    norms = np.linalg.norm(by_row.view(np.int64) * 2.0**-36, axis=1)
    assert norms.max() <= 0.5


def test_rounds_without_rows_release_noise_of_the_plan_s_size():
    """Empty Poisson batches are steps like all others (Opacus #161, #631)."""
    own: Any = {"network": "mlp", "rows_per_client": 500.0, "batch": 64.0}
    train = method(2, {"epsilon": 8.0}, epochs=0.5, **own)
    seen = []
    train.on_release = lambda release: seen.append(release.values)
    run_inline(train, nobody(2, inputs=np.zeros((0, 5))))
    assert len(seen) == train.plan.rounds == 8
    assert_std_is_one([values / train.plan.multiplier for values in seen])  # the clip is 1
