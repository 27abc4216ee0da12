"""The Flower client on its own: three messages, and what it must not answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode

from fedcal.bounding import Bound
from fedcal.clients.answers import answer, contribute
from fedcal.clients.client_app import client_app, site_of
from fedcal.experiments.engines.flower import InProcessGrid
from fedcal.privacy import Federation, make_plan
from fedcal.query import Ask, Query
from fedcal.release import Curator
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


# --- noise and coins ----------------------------------------------------------------------------

LENGTH = 40


def noisy_query(shards: Shards, **change: Any) -> Query:
    """As a plan under trust `distributed` asks it, with the seed of a simulation."""
    federation = Federation(
        clients=CLIENTS, classes=3, epsilon=1.0, trust="distributed", sampling_rate=0.5
    )
    plan = make_plan(federation, rounds=1, bound=Bound((LENGTH,), (2.0,)))
    ask = Ask("temperature_scores", (LENGTH,), {"low": 0.25, "high": 8.0, "points": LENGTH})
    query = Curator(plan).open(1, ask).query
    assert query.seed is not None
    return replace(query, **change)


def sent_by(shards: Shards, query: Query, simulated: bool) -> list[list[int]]:
    app = client_app(
        lambda context: shards.block(site_of(context), site_of(context) + 1), simulated=simulated
    )
    grid = InProcessGrid(app, [70, 71, 72, 73])
    fields = ConfigRecord(query.to_fields())
    return [words_of(ask(grid, 70 + k, "query.answer", query=fields)) for k in range(CLIENTS)]


def test_a_simulated_client_sends_the_bits_of_the_batched_function(shards: Shards) -> None:
    query = noisy_query(shards)
    want = contribute(shards, query, np.arange(CLIENTS))
    assert sent_by(shards, query, simulated=True) == want.tolist()
    assert want.tolist() != answer(shards, query).tolist()


def test_a_real_client_ignores_the_seed_in_a_query(shards: Shards) -> None:
    """Whoever sent the seed could subtract the noise."""
    query = noisy_query(shards)
    seeded = contribute(shards, query, np.arange(CLIENTS)).tolist()
    real = [sent_by(shards, query, simulated=False) for _ in range(2)]
    for k in range(CLIENTS):
        assert len({tuple(v[k]) for v in (seeded, *real)}) == 3
    plain = client_app(lambda context: shards.block(site_of(context), site_of(context) + 1))
    grid = InProcessGrid(plain, [70, 71, 72, 73])
    fields = ConfigRecord(query.to_fields())
    by_default = words_of(ask(grid, 70, "query.answer", query=fields))
    assert by_default not in (seeded[0], answer(shards, query)[0].tolist())


@pytest.mark.parametrize(
    "change",
    [
        {"noise": "none"},
        {"noise-scales": [0.0]},
        {"noise-scales": ["wide"]},
        {"noise-shares": 0},
        {"noise-lengths": [LENGTH + 1]},
        {"rate": 0.0},
        {"rate": 2.0},
        {"seed": -1},
        {"order": 7},
        {"per": "site"},
        {"norms": ["x"]},
    ],
)
def test_a_question_that_makes_no_sense_is_one_line_and_no_answer(
    change: dict[str, Any], grid: InProcessGrid, shards: Shards
) -> None:
    fields: dict[str, Any] = {**noisy_query(shards).to_fields(), **change}
    reply = ask(grid, 70, "query.answer", query=ConfigRecord(fields))
    assert reply.has_error()
    said = str(reply.error.reason)
    assert said.startswith("InputError: ")
    assert "\n" not in said
