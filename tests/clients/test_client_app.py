"""The Flower client on its own: two messages, and what it must not answer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedcal.clients.answers import answer, contribute
from fedcal.clients.client_app import client_app, site_of
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy import Federation, make_plan, wire
from fedcal.privacy.curator import Curator
from fedcal.privacy.query import Request
from fedcal.privacy.wire import facts_of
from fedcal.run.engines.flower import InProcessGrid
from fedcal.secure_aggregation.masking import mask
from fedcal.units import Bound

CLIENTS, LENGTH = 4, 40
LABELS, OWNER = np.array([0, 0, 1, 2, 2, 2, 1]), np.array([0, 0, 1, 1, 2, 2, 3])
SHARDS = rows_by_owner(np.zeros((7, 3)), LABELS, OWNER, CLIENTS)


def request_of(**change: Any) -> Request:
    """Return a question as a plan under trust `distributed` asks it, with a simulation's seed."""
    own = {"epsilon": 1.0, "trust": "distributed", "sampling_rate": 0.5}
    federation = Federation(CLIENTS, 3, **own)
    plan = make_plan(federation, rounds=1, bound=Bound((LENGTH,), (2.0,)))
    request = Curator(plan).open(1, TemperatureScores(0.25, 8.0, LENGTH)).request
    return replace(request, **change)


def ask(site: int, records: dict[str, dict[str, Any]], **options: bool) -> Message:
    def rows(context: Context) -> Shards:
        return SHARDS.block(site_of(context), site_of(context) + 1)

    grid = InProcessGrid(client_app(rows, **options), range(70, 70 + CLIENTS))
    content = RecordDict({name: ConfigRecord(fields) for name, fields in records.items()})
    message = Message(content, 70 + site, "query.answer", group_id="5")
    (reply,) = grid.send_and_receive([message])
    return reply


def records_of(request: Request) -> dict[str, dict[str, Any]]:
    """Return the two records of a question."""
    return {"query": wire.to_fields(request), "context": facts_of(request.query)}


def words_of(reply: Message) -> list[int]:
    return [int(v) for v in reply.content.array_records["answer"]["words"].numpy()]


def sent_by_all(request: Request, **options: bool) -> list[list[int]]:
    return [words_of(ask(k, records_of(request), **options)) for k in range(CLIENTS)]


def test_an_answer_is_masked_where_the_server_says_so():
    request = request_of(noise=None, rate=1.0)
    masking = {"seed": 9}
    reply = ask(2, {**records_of(request), "masking": masking})
    want = answer(SHARDS, request)[2] + mask(2, 9, request.round, LENGTH)
    assert words_of(reply) == want.tolist()


def test_a_real_client_ignores_the_seed_in_a_query():
    """Whoever sent the seed could subtract the noise."""
    request = request_of()
    seeded = contribute(SHARDS, request, np.arange(CLIENTS)).tolist()
    plain = answer(SHARDS, request).tolist()
    sent = [seeded, plain, sent_by_all(request), sent_by_all(request, simulated=False)]
    for k in range(CLIENTS):
        assert len({tuple(each[k]) for each in sent}) == 4


@pytest.mark.parametrize(
    ("record", "change"),
    [
        ("query", {"noise": "none"}),
        ("query", {"seed": -1}),
        ("query", {"param.mystery": 1}),
        ("context", {"version": 2}),
        ("context", {"query-version": 0}),
    ],
)
def test_a_message_that_makes_no_sense_is_one_line_and_no_answer(record, change):
    records = records_of(request_of())
    reply = ask(0, {**records, record: records[record] | change})
    reason = str(reply.error.reason)
    assert reason.startswith("InputError: ")
    assert "\n" not in reason
