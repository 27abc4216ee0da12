"""Message of a client under each trust model: its bounded answer, its coin, its noise."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from laws import ADDITIVE

from fedcal.clients import answers
from fedcal.clients.answers import answer, contribute
from fedcal.clients.questions.search import CalibrationGaps, ClippedNLL
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.clients.replies import drawn
from fedcal.core.checks import InputError
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy import Federation, Plan, make_plan, wire
from fedcal.privacy.curator import Curator
from fedcal.privacy.query import QUERIES, Request
from fedcal.privacy.wire import facts_of
from fedcal.units import Bound, encode_bounded

CLIENTS = 40
TRUSTED = [(mechanism, trust) for mechanism in ADDITIVE for trust in ("distributed", "local")]
trusted = pytest.mark.parametrize(("mechanism", "trust"), TRUSTED)
everybody = np.arange(CLIENTS)


def some_shards(clients: int = CLIENTS, rows: int = 200, classes: int = 4) -> Shards:
    rng = np.random.default_rng(3)
    owner = rng.integers(0, clients - 1, rows)  # the last one has none
    logits, labels = rng.normal(0, 3, (rows, classes)), rng.integers(0, classes, rows)
    return rows_by_owner(logits, labels, owner, clients)


def plan_of(length: int = 2, **change: Any) -> Plan:
    fields: dict[str, Any] = {"clients": CLIENTS, "classes": 4, "epsilon": 1.0}
    federation = Federation(**fields | change)
    return make_plan(federation, rounds=1, bound=Bound((length,), (1.5,)), row_sums=True)


def asked_of(plan: Plan) -> Request:
    return Curator(plan).open(1, CalibrationGaps(1.0, plan.bound.length)).request


def noise_in(sent: np.ndarray, request: Request, shards: Shards) -> np.ndarray:
    """Return the noise of the answers, as integers."""
    return (sent - answer(shards, request)).view(np.int64)


@trusted
def test_each_client_adds_its_noise_to_its_answer(mechanism, trust):
    plan = plan_of(500, mechanism=mechanism, trust=trust)
    request, shards = asked_of(plan), some_shards()
    noise = noise_in(contribute(shards, request, everybody), request, shards) * plan.grid
    np.testing.assert_allclose(noise.sum(axis=0).std(), plan.std_of_sum(CLIENTS)[0], rtol=0.25)
    np.testing.assert_allclose(
        noise.std(axis=0).mean(), plan.std_of_sum(CLIENTS)[0] / math.sqrt(CLIENTS), rtol=0.25
    )
    assert len({tuple(row) for row in noise.tolist()}) == CLIENTS  # no two clients alike
    # Signs: few of a Polya share's draws are large, and these alone would make the correlation.
    assert np.abs(np.corrcoef(np.sign(noise)) - np.eye(CLIENTS)).max() < 7 / math.sqrt(500)


@trusted
def test_a_site_sends_the_same_alone_and_among_others(mechanism, trust):
    plan = plan_of(mechanism=mechanism, trust=trust, sampling_rate=0.5)
    request, shards = asked_of(plan), some_shards()
    together = contribute(shards, request, everybody)
    for k in (0, 7, CLIENTS - 1):
        alone = contribute(shards.block(k, k + 1), request, np.array([k]))
        np.testing.assert_array_equal(alone[0], together[k])
    order = np.random.default_rng(1).permutation(CLIENTS)
    np.testing.assert_array_equal(contribute(shards.take(order), request, order), together[order])
    travelled = wire.from_fields(wire.to_fields(request), facts_of(request.query))
    np.testing.assert_array_equal(contribute(shards, travelled, everybody), together)


@trusted
@pytest.mark.parametrize("seeded", [True, False])
def test_a_real_client_takes_no_seed_from_a_message(mechanism, trust, seeded):
    source = "seeded" if seeded else "system"
    request = asked_of(plan_of(50, mechanism=mechanism, trust=trust, noise_source=source))
    assert (request.seed is not None) == seeded
    shards = some_shards(rows=0)
    real = [contribute(shards, request, everybody, simulated=False) for _ in range(2)]
    # a share of discrete Laplace noise is 0 half of the time
    least = 0.3 if trust == "distributed" else 0.95
    assert (real[0] != real[1]).mean() > least
    simulated = [contribute(shards, request, everybody) for _ in range(2)]
    assert (simulated[0] != simulated[1]).any() == (not seeded)
    assert (real[0] != simulated[0]).mean() > least
    for real_one in (True, False):  # as a Flower client replies
        words = [drawn(None, request, 0, simulated=not real_one, private=True)[0] for _ in range(2)]
        assert (words[0] != words[1]).any() == (real_one or not seeded)


def test_coins_are_tossed_afresh_by_each_site_in_each_round():
    plan = plan_of(1, sampling_rate=0.5, trust="distributed")
    request = replace(asked_of(plan), noise=None)
    shards = rows_by_owner(
        np.tile([0.0, 0.0, 0.0, 5.0], (CLIENTS, 1)), np.zeros(CLIENTS, int), everybody, CLIENTS
    )

    def heads(**change: Any) -> list[bool]:
        sent = contribute(shards, replace(request, **change), everybody)
        return [bool(h) for h in sent[:, 0] != 0]

    assert heads() == heads()
    assert heads() == heads(bound=replace(request.bound, norms=(1.0,)))  # one coin a round
    several = [heads(), heads(round=2), heads(seed=1), heads(round=3)]
    assert len({tuple(h) for h in several}) == 4
    assert all(0.2 < np.mean(h) < 0.8 for h in several)


@pytest.mark.parametrize("simulated", [True, False])
def test_each_row_takes_part_by_a_coin_of_its_own(simulated):
    """At a real site the operating system tosses it."""
    request = replace(asked_of(plan_of(1)), row_rate=0.25, seed=7)
    shards = some_shards(rows=4000)
    taken = [answers._taken(shards, request, everybody, simulated) for _ in range(2)]
    assert all(np.unique(t).size == t.size and 850 < t.size < 1150 for t in taken)  # 5 std
    assert np.array_equal(*taken) == simulated


def test_a_tail_sends_what_a_client_without_rows_sends():
    """To the bit: so neither an answer nor its sender reveals a coin, or whether there are rows."""
    clients, length = 400, 20
    plan = plan_of(length, clients=clients, sampling_rate=0.5, trust="distributed")
    request, shards, ids = asked_of(plan), some_shards(clients, 4000), np.arange(clients)
    sent = contribute(shards, request, ids)
    noise = contribute(some_shards(clients, 0), request, ids)
    coins = contribute(shards, replace(request, noise=None), ids)
    heads = (coins != 0).any(axis=1)
    assert 0.3 < heads.mean() < 0.7
    np.testing.assert_array_equal(sent[~heads], noise[~heads])
    np.testing.assert_array_equal(sent[heads], (noise + answer(shards, request))[heads])
    assert (noise != 0).any(axis=1).mean() > 0.9  # everybody adds some


class Unanswerable(ClippedNLL):
    def sums(self, shards: Shards, sites: Any = None) -> Any:
        raise InputError("nobody can answer")


def test_a_tail_is_computed_and_refused_like_a_head():
    """A question that cannot be answered fails whatever the coin, or failing would reveal it."""
    plan = plan_of(1, sampling_rate=0.01, trust="distributed")
    request = asked_of(plan)
    request = replace(request, query=Unanswerable(1.0, 10.0))
    for k in range(10):
        with pytest.raises(InputError, match="nobody can answer"):
            contribute(some_shards().block(k, k + 1), request, np.array([k]))


@trusted
def test_questions_that_differ_in_anything_share_no_noise(mechanism, trust):
    """Proportional noise on two answers, or the same on two sums, would give both away."""
    request = asked_of(plan_of(mechanism=mechanism, trust=trust))
    bound, noise = request.bound, request.noise
    nobody = some_shards(rows=0)  # then all that is sent is noise
    one = contribute(nobody, request, everybody).view(np.int64)
    np.testing.assert_array_equal(one, contribute(nobody, request, everybody).view(np.int64))
    changes: list[dict[str, Any]] = [
        {"seed": 1},
        {"round": 2},
        {"query": CalibrationGaps(2.0, 2)},
        {"query": TemperatureScores(0.5, 2.0, 2)},
        {"bound": replace(bound, norms=(3.0,))},
        {"bound": replace(bound, order=3 - bound.order)},
        {"bound": replace(bound, per="row" if bound.per == "client" else "client")},
        {"noise": replace(noise, scales=(2 * noise.scales[0],))},
        {"rate": 0.75},
    ]
    for change in changes:
        two = contribute(nobody, replace(request, **change), everybody).view(np.int64)
        ratio = two / np.where(one == 0, 1, one)
        for same in (1.0, 2.0, 0.5):
            assert (np.abs(ratio - same) < 1e-3).mean() < 0.05, change


@pytest.mark.parametrize("kind", [k for k, q in QUERIES.items() if q.row_sums and not q.fine])
def test_rows_are_clipped_one_by_one_and_added_in_any_piece(kind, monkeypatch):
    query = QUERIES[kind](**QUERIES[kind].examples[-1])
    shards, bound = some_shards(rows=60, classes=3), query.bound("row")
    bound = replace(bound, norms=tuple(0.4 * norm for norm in bound.norms), per="row")
    request = Request(query, bound, plan_of().ring, 1)
    sums = answer(shards, request)
    want = np.zeros_like(sums)
    for i, owner in enumerate(shards.owner):
        row = request.query.sums(shards.each_row().block(i, i + 1))
        want[owner] += encode_bounded(row, request.bound, request.ring)[0]
    np.testing.assert_array_equal(sums, want)
    monkeypatch.setattr(answers, "ROW_NUMBERS", 50)
    np.testing.assert_array_equal(answer(shards, request), sums)
