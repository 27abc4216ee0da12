"""The Flower client on its own: three messages, and what it must not answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode

from clients.answers import answer
from clients.client_app import client_app, site_of
from experiments.engines.flower import InProcessGrid
from fedcal.privacy.bounding import Bound
from fedcal.query import Query
from fedcal.secure_aggregation import Ring, mask, reveal
from fedcal.shards import Shards

CLIENTS = 4
QUERY = Query("class_counts", {}, Bound((3,), (2.0,)), Ring(CLIENTS, 2.0**-24), round=5)
MASKING: dict[str, Any] = {"seed": 9, "cohort": [0, 2, 3]}


@pytest.fixture
def shards() -> Shards:
    labels = np.array([0, 0, 1, 2, 2, 2, 1])
    return Shards.from_owner(np.zeros((7, 3)), labels, np.array([0, 0, 1, 1, 2, 2, 3]), CLIENTS)


@pytest.fixture
def grid(shards: Shards) -> InProcessGrid:
    app = client_app(lambda context: shards.block(site_of(context), site_of(context) + 1))
    return InProcessGrid(app, [70, 71, 72, 73])


def ask(grid: InProcessGrid, node: int, kind: str, **records: ConfigRecord) -> Message:
    content = RecordDict(dict(records))
    (reply,) = grid.send_and_receive([Message(content, node, kind, group_id="5")])
    return reply


def words_of(reply: Message) -> list[int]:
    return [int(v) for v in reply.content.array_records["answer"]["words"].numpy()]


def test_a_node_tells_its_site(grid: InProcessGrid) -> None:
    sites = [
        ask(grid, node, "query.who").content.config_records["who"]["site"]
        for node in grid.get_node_ids()
    ]
    assert sites == [0, 1, 2, 3]


def test_an_answer_is_that_of_the_batched_function(grid: InProcessGrid, shards: Shards) -> None:
    want = answer(shards, QUERY)
    assert want.any()
    for site in range(CLIENTS):
        reply = ask(grid, 70 + site, "query.answer", query=ConfigRecord(QUERY.to_fields()))
        assert words_of(reply) == want[site].tolist()
        assert list(reply.content) == ["answer"]


def test_with_a_cohort_the_answer_is_masked(grid: InProcessGrid, shards: Shards) -> None:
    reply = ask(
        grid,
        72,
        "query.answer",
        query=ConfigRecord(QUERY.to_fields()),
        masking=ConfigRecord(MASKING),
    )
    want = answer(shards, QUERY)[2] + mask(2, [0, 2, 3], 9, QUERY.round, 3)
    assert words_of(reply) == want.tolist()


def test_reveal_tells_the_seeds_of_this_round_and_pair_only(grid: InProcessGrid) -> None:
    asked = ConfigRecord({**MASKING, "dropped": [3], "round": 5})
    record = ask(grid, 70, "query.reveal", masking=asked).content.config_records["seeds"]
    assert dict(record) == {"3": reveal(0, [3], [0, 2, 3], 9, 5)[3]}
    other = ConfigRecord({**MASKING, "dropped": [3], "round": 6})
    assert record != ask(grid, 70, "query.reveal", masking=other).content.config_records["seeds"]


@pytest.mark.parametrize(
    ("kind", "records"),
    [
        # its own seeds would unmask what it has sent
        ("query.reveal", {"masking": {**MASKING, "cohort": [0, 2], "dropped": [0], "round": 5}}),
        # not a member of the cohort
        ("query.answer", {"query": QUERY.to_fields(), "masking": {**MASKING, "cohort": [1, 2]}}),
        ("query.answer", {"query": {**QUERY.to_fields(), "kind": "rows"}}),
        ("query.answer", {"query": {k: v for k, v in QUERY.to_fields().items() if k != "norms"}}),
        ("query.answer", {"query": {**QUERY.to_fields(), "lengths": [4]}}),
        ("query.answer", {}),
        ("query.everything", {}),
    ],
)
def test_what_is_not_allowed_is_an_error_reply(
    grid: InProcessGrid, kind: str, records: dict[str, dict[str, Any]]
) -> None:
    sent = {k: ConfigRecord(v) for k, v in records.items()}
    reply = ask(grid, 70, kind, **sent)
    assert reply.has_error()
    assert reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
