"""Replies as they come: one to each message, whatever else arrives."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message

from fedcal.clients.client_app import client_app
from fedcal.errors import RoundFailed
from fedcal.experiments.engines.flower import InProcessGrid
from fedcal.shards import Shards
from fedcal.strategies.exchange import PromptGrid, message

NODES = [11, 12, 13]


def nothing(context: Context) -> Shards:
    return Shards.from_owner(np.zeros((0, 2)), np.zeros(0, np.int64), np.zeros(0, np.int64), 1)


class Slow(InProcessGrid):
    """Gives each reply twice, late, and one that nobody asked for."""

    def __init__(self, *, lost: frozenset[int] = frozenset(), takes: bool = True) -> None:
        super().__init__(client_app(nothing), NODES)
        self._lost, self._takes, self.looks = lost, takes, 0
        self._kept: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return super().push_messages(messages) if self._takes else []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.looks += 1
        if self.looks < 3:
            return []
        found = list(super().pull_messages(message_ids))
        found = [m for m in found if m.metadata.src_node_id not in self._lost]
        again, self._kept = self._kept, [*self._kept, *found]
        return [*found, *again, *found]


def asking() -> list[Message]:
    return [message({"x": ConfigRecord({"a": 1})}, node, "query.who", 0, 5.0) for node in NODES]


def test_each_message_has_one_reply_and_its_bytes_are_counted() -> None:
    grid = PromptGrid(Slow())
    first = grid.send_and_receive(asking(), timeout=5.0)
    assert sorted(m.metadata.src_node_id for m in first) == NODES
    up, down = grid.bytes_up, grid.bytes_down
    assert up > 0
    assert down > 0
    again = grid.send_and_receive(asking(), timeout=5.0)  # replies of the first come along
    assert sorted(m.metadata.src_node_id for m in again) == NODES
    assert (grid.bytes_up, grid.bytes_down) == (2 * up, 2 * down)
    assert grid.get_node_ids() == NODES  # everything else is the grid's own


def test_what_has_not_come_in_time_is_missing() -> None:
    start = time.monotonic()
    replies = PromptGrid(Slow(lost=frozenset({12}))).send_and_receive(asking(), timeout=0.3)
    assert sorted(m.metadata.src_node_id for m in replies) == [11, 13]
    assert time.monotonic() - start >= 0.3


def test_messages_that_flower_does_not_take_fail_the_round_and_nobody_is_waited_for() -> None:
    grid = PromptGrid(Slow(takes=False))
    with pytest.raises(RoundFailed, match="took none of the messages"):
        grid.send_and_receive(asking(), timeout=1.0)
    assert grid.send_and_receive([], timeout=1.0) == []


def test_a_message_lives_no_longer_than_the_server_waits() -> None:
    assert {m.metadata.ttl for m in asking()} == {5.0}
