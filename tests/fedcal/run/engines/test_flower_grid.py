"""Flower's own loop: what the server sees, and what it does about clients that misbehave."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedcal.clients.answers import answer
from fedcal.clients.client_app import client_app, site_of
from fedcal.clients.questions.histograms import ClassHistograms
from fedcal.core.checks import RoundFailed
from fedcal.core.numerics import Words
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation
from fedcal.privacy.query import Request
from fedcal.run.engines.flower import InProcessGrid
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.histograms import FedBin
from fedcal.strategies.methods.newton import FedNewton
from fedcal.strategies.server.participation import SITE_INFO
from fedcal.strategies.server.transport import ANSWER

CLIENTS, CLASSES = 16, 4
IDS = [1000 + 7 * k for k in range(CLIENTS)]

Replies = list[Message]


@pytest.fixture
def shards():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 200)
    logits = rng.normal(0, 4, (200, CLASSES))
    return rows_by_owner(logits, labels, rng.integers(0, CLIENTS, 200), CLIENTS)


class Wire(InProcessGrid):
    """Keeps what is sent and received; `tamper` may change the replies on their way."""

    def __init__(
        self,
        shards: Shards,
        tamper: Tamper | None = None,
        unavailable: Callable[[int, Message], bool] | None = None,
    ) -> None:
        single = [shards.block(k, k + 1) for k in range(CLIENTS)]
        super().__init__(client_app(lambda context: single[site_of(context)]), IDS, unavailable)
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self._tamper = tamper

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        asked = list(messages)
        self.sent += asked
        replies = list(super().send_and_receive(asked, timeout=timeout))
        if self._tamper is not None and asked:
            replies = self._tamper(self, asked[0].metadata.message_type, replies)
        self.received += replies
        return replies

    @property
    def first(self) -> bool:
        """Nobody was asked for an answer yet."""
        return not any(m.metadata.message_type == ANSWER for m in self.sent)

    def of_kind(self, messages: list[Message], kind: str) -> dict[int, Message]:
        """Messages of one kind by site."""
        return {
            IDS.index(m.metadata.src_node_id if m in self.received else m.metadata.dst_node_id): m
            for m in messages
            if m.metadata.message_type == kind
        }


Tamper = Callable[[Wire, str, Replies], Replies]


SECRETIVE = (
    "round 1: a sampled client failed or sent what cannot be used; no sum was released "
    "(see its own log)"
)


def fedbin(masks: str = "masks", epsilon: float = 1.0, **fields: Any) -> FederatedStrategy:
    federation = Federation(CLIENTS, CLASSES, epsilon=epsilon, seed=3, **fields)
    return FedBin(federation, bins_exponent=5, secure_aggregation=masks)


def newton(masks: str = "masks", epsilon: float = 1.0, **options: Any) -> FederatedStrategy:
    federation = Federation(CLIENTS, CLASSES, rounds=2, epsilon=epsilon, seed=3)
    return FedNewton(federation, rows_per_client=12, secure_aggregation=masks, **options)


def words_of(reply: Message) -> Words:
    words: Words = reply.content.array_records["answer"]["words"].numpy()
    return words


def of_site(replies: Replies, site: int) -> Message:
    return next(r for r in replies if r.metadata.src_node_id == IDS[site])


def stops(shards: Shards, tamper: Tamper, match: str, masks: str = "masks") -> None:
    """The run ends with one line; nothing is released and nothing stays reserved.

    The line names the site, but not where who was sampled is a secret.
    """
    ledger = Ledger(None, 1.0)
    for strategy in (newton(masks, math.inf), newton(masks, ledger=ledger)):
        with pytest.raises(RoundFailed) as caught:
            strategy.start(Wire(shards, tamper))
        line = str(caught.value)
        assert "\n" not in line
        if strategy.plan.private and not line.startswith("a node"):  # all nodes say who they are
            assert line == SECRETIVE
        else:
            assert re.search(match, line)
        assert (strategy.releases, ledger.entries()) == ([], ())


def answers_of(shards: Shards, masks: str) -> tuple[Wire, np.ndarray, np.ndarray]:
    """A run of FedBin: what was on its wire, its answers, and the plain contributions."""
    wire, strategy = Wire(shards), fedbin(masks)
    strategy.start(wire)
    assert strategy.plan.bound is not None
    query = ClassHistograms(32, CLASSES)
    plain = answer(shards, Request(query, strategy.plan.bound, strategy.plan.ring, 1))
    assert plain.any(axis=1).all()
    answers = wire.of_kind(wire.received, ANSWER)
    assert sorted(answers) == list(range(CLIENTS))
    return wire, np.stack([words_of(answers[k]) for k in range(CLIENTS)]), plain


def test_with_masks_other_vectors_are_on_the_wire(shards):
    wire, seen, plain = answers_of(shards, "masks")
    assert (seen != plain).all()
    for message in wire.received:
        records = set(message.content)
        assert records == {"who" if message.metadata.message_type == SITE_INFO else "answer"}

    wire, seen, plain = answers_of(shards, "none")  # and without masks the plain contributions
    assert np.array_equal(seen, plain)
    assert all("masking" not in m.content for m in wire.sent)


def values(strategy: FederatedStrategy) -> list[bytes]:
    return [r.values.tobytes() for r in strategy.releases]


@pytest.mark.parametrize(
    ("how", "masks"),
    [("error", "none"), ("error", "masks"), ("silence", "masks"), ("unknown", "none")],
)
def test_an_absent_node_is_a_dropout(how, masks, shards):
    """An error reply of Flower, no reply within the timeout, or not even known to be there."""
    gone = 4

    def away(site: int, message: Message) -> bool:
        kind = message.metadata.message_type
        return site == gone and (
            (how == "error" and kind == ANSWER) or (how == "unknown" and kind == SITE_INFO)
        )

    def silence(wire: Wire, kind: str, replies: Replies) -> Replies:
        if kind != ANSWER or how != "silence":
            return replies
        return [r for r in replies if r.metadata.src_node_id != IDS[gone]]

    strategy, want = newton(masks), newton()
    strategy.start(Wire(shards, silence, away))
    run_inline(want, shards, unavailable=lambda number: np.array([gone]))
    assert values(strategy) == values(want)


def replaced(kind: str, site: int, content: dict[str, Any]) -> Tamper:
    """Of the replies of this kind a site's holds something else."""

    def tamper(wire: Wire, of: str, replies: Replies) -> Replies:
        if of == kind:
            of_site(replies, site).content = RecordDict(content)
        return replies

    return tamper


def test_a_node_that_lies_about_its_site_stops_the_run(shards):
    for site in (3, CLIENTS):
        lie = replaced(SITE_INFO, 8, {"who": ConfigRecord({"site": site})})
        stops(shards, lie, f"site {site}, which cannot be")
    for names in ({}, {"site": "third"}):
        lie = replaced(SITE_INFO, 8, {"who": ConfigRecord(names)} if names else {})
        stops(shards, lie, "does not say which site")


CONTENTS = [
    {},
    {"answer": ConfigRecord({"words": [1, 2]})},
    {"answer": ArrayRecord({"other": Array(np.zeros(2, np.uint64))})},
    {"answer": ArrayRecord({"words": Array("", (), "numpy.ndarray", b"PK\5\6" + bytes(18))})},
    *(
        {"answer": ArrayRecord({"words": Array(words)})}
        for words in (
            *(np.zeros(2, dtype) for dtype in (np.int64, np.float64, ">u8")),
            *(np.zeros(shape, np.uint64) for shape in (3, (1, 2), ())),
            np.array(["a", "b"]),
        )
    ),
]


def test_an_answer_without_words_of_its_dtype_and_shape_stops_the_run(shards):
    for k, content in enumerate(CONTENTS):
        stops(shards, replaced(ANSWER, 6, content), "site 6 sent", "masks" if k % 2 else "none")


def test_two_answers_from_one_site_stop_the_run(shards):
    def twice(wire: Wire, kind: str, replies: Replies) -> Replies:
        return [*replies, of_site(replies, 2)] if kind == ANSWER else replies

    def strange(wire: Wire, kind: str, replies: Replies) -> Replies:
        if kind == ANSWER:
            of_site(replies, 0).metadata.__dict__["_src_node_id"] = 5
        return replies

    stops(shards, twice, "site 2 answered out of turn", "none")
    stops(shards, strange, "answered out of turn")


@pytest.mark.parametrize("masks", ["none", "masks"])
def test_only_sampled_clients_are_asked_and_another_s_answer_stops_the_run(masks, shards):
    wire, strategy = Wire(shards), fedbin(masks, math.inf, sampling_rate=0.3)
    strategy.start(wire)
    cohort = strategy.plan.sample(1)
    assert sorted(wire.of_kind(wire.sent, ANSWER)) == cohort.tolist()
    assert 0 < len(cohort) < CLIENTS
    outsider = next(k for k in range(CLIENTS) if k not in cohort)

    def tamper(wire: Wire, kind: str, replies: Replies) -> Replies:
        if kind == ANSWER:
            replies[0].metadata.__dict__["_src_node_id"] = IDS[outsider]
        return replies

    strategy = fedbin(masks, math.inf, sampling_rate=0.3)
    with pytest.raises(RoundFailed, match=f"site {outsider} answered out of turn"):
        strategy.start(Wire(shards, tamper))
    assert strategy.releases == []


def test_a_client_that_raises_stops_the_run_and_its_words_stay_in_its_log(shards, caplog):
    def shard_of(context: Context) -> Shards:
        if site_of(context) == 5:
            raise OSError("cannot read\n  the rows")
        return shards.block(site_of(context), site_of(context) + 1)

    ledger = Ledger(None, 1.0)
    for strategy in (newton("none", math.inf), newton(ledger=ledger)):
        with pytest.raises(RoundFailed) as caught:
            strategy.start(InProcessGrid(client_app(shard_of), IDS))
        line = str(caught.value)
        assert line == SECRETIVE if strategy.plan.private else line.startswith("site 5 answered")
        assert "rows" not in line
        assert "cannot read" in caplog.text
        assert (strategy.releases, ledger.entries()) == ([], ())


def test_a_site_comes_back_as_another_node(shards):
    """Its old node is gone, so the new one is that site: same sums as if nothing had happened."""

    class Restarting(Wire):
        def get_node_ids(self) -> Iterable[int]:
            if not self.first and IDS[4] in self._contexts:
                self._contexts[5] = self._contexts.pop(IDS[4])
            return super().get_node_ids()

    strategy, want = newton(), newton()
    strategy.start(Restarting(shards))
    run_inline(want, shards)
    assert values(strategy) == values(want)
