"""The Flower client on its own: two messages, and what it must not answer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedcal.clients.answers import answer, contribute
from fedcal.clients.client_app import client_app, site_of
from fedcal.clients.questions.histograms import ClassCounts
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.core.shards import Shards
from fedcal.privacy import Federation, make_plan, wire
from fedcal.privacy.curator import Curator
from fedcal.privacy.query import Request, facts_of
from fedcal.run.engines.flower import InProcessGrid
from fedcal.secure_aggregation import Ring
from fedcal.secure_aggregation.masking import mask
from fedcal.units import Bound

CLIENTS = 4
REQUEST = Request(ClassCounts(3), Bound((3,), (2.0,)), Ring(CLIENTS, 2.0**-24), round=5)
MASKING: dict[str, Any] = {"seed": 9, "cohort": [0, 2, 3]}


@pytest.fixture
def shards():
    labels = np.array([0, 0, 1, 2, 2, 2, 1])
    return Shards.from_owner(np.zeros((7, 3)), labels, np.array([0, 0, 1, 1, 2, 2, 3]), CLIENTS)


@pytest.fixture
def grid(shards):
    app = client_app(lambda context: shards.block(site_of(context), site_of(context) + 1))
    return InProcessGrid(app, [70, 71, 72, 73])


def ask(grid: InProcessGrid, node: int, kind: str, **records: ConfigRecord) -> Message:
    content = RecordDict(dict(records))
    (reply,) = grid.send_and_receive([Message(content, node, kind, group_id="5")])
    return reply


def records_of(request: Request) -> dict[str, ConfigRecord]:
    """The two records of a question."""
    fields, context = wire.to_fields(request), facts_of(request.query)
    return {"query": ConfigRecord(fields), "context": ConfigRecord(context)}


def words_of(reply: Message) -> list[int]:
    return [int(v) for v in reply.content.array_records["answer"]["words"].numpy()]


def test_with_a_cohort_the_answer_is_masked(grid, shards):
    reply = ask(grid, 72, "query.answer", **records_of(REQUEST), masking=ConfigRecord(MASKING))
    want = answer(shards, REQUEST)[2] + mask(2, [0, 2, 3], 9, REQUEST.round, 3)
    assert words_of(reply) == want.tolist()


LENGTH = 40


def noisy_request(shards: Shards, **change: Any) -> Request:
    """As a plan under trust `distributed` asks it, with the seed of a simulation."""
    federation = Federation(
        clients=CLIENTS, classes=3, epsilon=1.0, trust="distributed", sampling_rate=0.5
    )
    plan = make_plan(federation, rounds=1, bound=Bound((LENGTH,), (2.0,)))
    request = Curator(plan).open(1, TemperatureScores(0.25, 8.0, LENGTH)).request
    return replace(request, **change)


def sent_by(shards: Shards, request: Request, simulated: bool) -> list[list[int]]:
    app = client_app(
        lambda context: shards.block(site_of(context), site_of(context) + 1), simulated=simulated
    )
    grid = InProcessGrid(app, [70, 71, 72, 73])
    sent = records_of(request)
    return [words_of(ask(grid, 70 + k, "query.answer", **sent)) for k in range(CLIENTS)]


def test_a_simulated_client_sends_the_bits_of_the_batched_function(shards):
    request = noisy_request(shards)
    want = contribute(shards, request, np.arange(CLIENTS))
    assert sent_by(shards, request, simulated=True) == want.tolist()
    assert want.tolist() != answer(shards, request).tolist()


def test_a_real_client_ignores_the_seed_in_a_query(shards):
    """Whoever sent the seed could subtract the noise."""
    request = noisy_request(shards)
    seeded = contribute(shards, request, np.arange(CLIENTS)).tolist()
    real = [sent_by(shards, request, simulated=False) for _ in range(2)]
    for k in range(CLIENTS):
        assert len({tuple(v[k]) for v in (seeded, *real)}) == 3
    plain = client_app(lambda context: shards.block(site_of(context), site_of(context) + 1))
    grid = InProcessGrid(plain, [70, 71, 72, 73])
    by_default = words_of(ask(grid, 70, "query.answer", **records_of(request)))
    assert by_default not in (seeded[0], answer(shards, request)[0].tolist())


def test_a_context_that_makes_no_sense_is_one_line_and_no_answer(grid, shards):
    """Nor a question that makes none; all of them: tests/fedcal/privacy/test_request.py."""
    request = noisy_request(shards)
    fields = {"query": wire.to_fields(request), "context": facts_of(request.query)}
    changes: list[tuple[str, dict[str, Any]]] = [
        ("query", {"noise": "none"}),
        ("query", {"seed": -1}),
        ("query", {"param.mystery": 1}),
        ("context", {"version": 2}),
        ("context", {"query-version": 0}),
    ]
    for record, change in changes:
        changed = {record: ConfigRecord({**fields[record], **change})}
        reply = ask(grid, 70, "query.answer", **(records_of(request) | changed))
        assert reply.has_error(), change
        said = str(reply.error.reason)
        assert said.startswith("InputError: "), change
        assert "\n" not in said
    alone = ask(grid, 70, "query.answer", query=ConfigRecord(fields["query"]))
    assert "cannot be read: 'version' is missing" in str(alone.error.reason)
