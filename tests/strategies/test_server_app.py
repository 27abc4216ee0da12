"""The ServerApp over an in-process grid: outcome, progress and errors, as a parent finds them."""

import logging
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from flwr.app import ConfigRecord, Context, Message, RecordDict
from refusals import each_is_refused

import fedcal.strategies.server_app as server
from fedcal import simulate
from fedcal.clients.client_app import app as site_app
from fedcal.clients.client_app import client_app, site_of
from fedcal.core.checks import BudgetExceeded, FedcalError, InputError, RoundFailed
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.flower import InProcessGrid
from fedcal.strategies.server.checkpoint import Checkpoint, read_error
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.server.participation import SITE_INFO, PromptGrid, message
from fedcal.strategies.server.transport import ANSWER

CLIENTS, CLASSES = 9, 3
NEWTON = {"rows_per_client": 12.0}


@pytest.fixture
def shards():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 110)
    logits = rng.normal(0, 4, (110, CLASSES))
    return rows_by_owner(logits, labels, rng.integers(0, CLIENTS, 110), CLIENTS)


class Wire(InProcessGrid):
    """Keeps the kinds and nodes of what is sent."""

    def __init__(self, shards: Shards, nodes: Iterable[int] = range(50, 50 + CLIENTS)) -> None:
        def rows(context: Context) -> Shards:
            return shards.block(site_of(context), site_of(context) + 1)

        super().__init__(client_app(rows), list(nodes))
        self.sent: list[tuple[str, int]] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.sent += [(m.metadata.message_type, m.metadata.dst_node_id - 50) for m in messages]
        return super().push_messages(messages)


def job_of(epsilon: float = 1.0, rounds: int = 3, **options: Any) -> Job:
    federation = Federation(CLIENTS, CLASSES, rounds=rounds, epsilon=epsilon, seed=4)
    return Job("fednewton", federation, NEWTON, **options)


def fields_of(job: Job, out: Path | str = "") -> dict[str, Any]:
    here = {"data": "", "partition": "", "out": str(out), **server.FRESH}
    return {**job.to_fields(), **here}


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_nothing_tells_how_many_were_sampled(rate, shards, tmp_path, caplog):
    """Neither times, nor bytes, nor a log; where everybody is asked all of them are there."""
    caplog.set_level(logging.INFO, "flwr")
    federation = Federation(CLIENTS, CLASSES, rounds=3, epsilon=1.0, sampling_rate=rate, seed=6)
    job = Job("fednewton", federation, NEWTON, tolerant=True, dropout=0.2)
    assert job.plan.secret_sample == (rate < 1)
    server.serve(Wire(shards), fields_of(job, tmp_path))
    got, kept = Outcome.load(tmp_path), Checkpoint.load(tmp_path)
    known = rate == 1
    assert (got.seconds is not None) == known
    assert len(got.round_seconds) == 3 * known
    assert (kept.seconds > 0) == known
    for words in ("clients answered", "Sampled ", "Received "):
        assert any(words in line for line in caplog.messages) == known
    assert not any("finished in" in line for line in caplog.messages)
    assert (got.sites["answered"] is not None) == known
    assert bool(kept.took_part.asked or kept.took_part.answered) == known


@pytest.mark.parametrize(("method", "epsilon"), [("fednewton", 1.0), ("fedbbq", np.inf)])
def test_without_a_folder_a_short_result_is_logged_and_no_sum(method, epsilon, shards, caplog):
    federation = Federation(CLIENTS, CLASSES, rounds=1, epsilon=epsilon, seed=4)
    job = Job(method, federation, NEWTON if method == "fednewton" else {})
    with caplog.at_level(logging.INFO, "flwr"):
        outcome = server.serve(Wire(shards), fields_of(job))
    text = "\n".join(caplog.messages[caplog.messages.index("Final results:") :])
    assert "Metrics" not in text  # Flower's own results are empty
    assert repr(outcome.artifact) in text
    assert ("spent: epsilon 1, delta 1e-05 for each user" in text) == (epsilon == 1.0)
    assert ("no privacy" in text) == (epsilon > 1)
    numbers = {float(number) for number in re.findall(r"\d+\.?\d*(?:e[+-]\d+)?", text)}
    sums = {value for record in outcome.records for value in record["values"]}
    assert {value for value in sums & numbers if value > CLIENTS} == set()


def stopped(fields: dict[str, Any], shards: Shards, out: Path) -> FedcalError:
    """Return the error that a parent reads; the same as what the ServerApp raises."""
    with pytest.raises(FedcalError) as caught:
        server.serve(Wire(shards), fields)
    error = read_error(out)
    assert (type(error), str(error)) == (type(caught.value), str(caught.value))
    assert not (out / "outcome.json").exists()
    return error


def test_what_stops_a_run_is_reported(shards, tmp_path):
    for key in ("method", "trust"):
        error = stopped({**fields_of(job_of(), tmp_path), key: "x"}, shards, tmp_path)
        assert (type(error), error.exit_code) == (InputError, 2)
    file = tmp_path / "ledger.db"
    Ledger(file, 0.5).close()
    fields = fields_of(job_of(ledger=str(file)), tmp_path)
    assert isinstance(stopped(fields, shards, tmp_path), BudgetExceeded)
    with Ledger(file) as ledger:
        assert ledger.entries() == ()
    broken = Shards(shards.logits, shards.labels + 99, shards.offsets)
    for epsilon in (np.inf, 1.0):
        error = stopped(fields_of(job_of(epsilon), tmp_path), broken, tmp_path)
        assert isinstance(error, RoundFailed)
        assert ("site" in str(error)) == (epsilon > 1)


def test_the_server_waits_for_all_nodes_before_it_reserves(shards, tmp_path, monkeypatch):
    """And takes the fields of its context, where Flower calls it."""
    looks, all_of = [0], Wire.get_node_ids

    def some(wire: Wire) -> Iterable[int]:
        looks[0] += 1
        return sorted(all_of(wire))[: 2 * looks[0] - 2]

    monkeypatch.setattr(Wire, "get_node_ids", some)
    wire, fields = Wire(shards), fields_of(job_of(), tmp_path)
    server.app(wire, Context(1, 1, {}, RecordDict(), fields))
    assert looks[0] > 5
    assert sum(kind == ANSWER for kind, _ in wire.sent) == 3 * CLIENTS
    assert wire.sent[0][0] == SITE_INFO
    outcome = Outcome.load(tmp_path)
    assert Job.from_fields(outcome.job).method == fields["method"]
    assert {"data", "partition"} <= set(outcome.job)  # `fedcal report` finds its test rows by them


BY_NAME: dict[str, Any] = {"data": "resnet110-cifar10", "partition": "iid", "seed": 4}


@pytest.mark.parametrize(("nodes", "epsilon"), [(1, np.inf), (4, 1.0)])
def test_no_clients_are_as_many_as_there_are_nodes(nodes, epsilon, caplog):
    job = Job("fednewton", Federation(1, 2, rounds=2, epsilon=epsilon))
    here = {"out": "", **server.FRESH, "grace": 0.5}
    fields = {**job.to_fields(), **BY_NAME, "clients": 0, "classes": 0, **here}
    grid = InProcessGrid(site_app, range(50, 50 + nodes))  # each node knows how many there are
    for context in grid._contexts.values():
        context.run_config = fields
    with caplog.at_level(logging.INFO, "flwr"):
        outcome = server.serve(grid, fields)
    want = simulate(**BY_NAME, clients=nodes, epsilon=epsilon, rounds=2)
    assert outcome.records == want.rounds
    assert outcome.calibrator.arrays() == want.calibrator.arrays()
    assert outcome.calibrator.classes == 10
    nominal = want.config.set.get("rows_per_client")
    assert (nominal is not None) == (epsilon == 1.0)
    line = f"rows_per_client {nominal or 0:g} is rows / clients of the simulated data; a deployment"
    assert (line in caplog.text) == (epsilon == 1.0)


ASKED = [11, 12, 13]


class Slow(InProcessGrid):
    """Gives each reply twice, late, and one that nobody asked for."""

    def __init__(self, takes: bool = True) -> None:
        none = rows_by_owner(*(np.zeros((0, 2)), np.zeros(0, int), np.zeros(0, int)), 1)
        super().__init__(client_app(lambda context: none), ASKED)
        self._takes, self._looks = takes, 0
        self._kept: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return super().push_messages(messages) if self._takes else []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self._looks += 1
        if self._looks < 3:
            return []
        found = list(super().pull_messages(message_ids))
        again, self._kept = self._kept, [*self._kept, *found]
        return [*found, *again, *found]


def asking() -> list[Message]:
    return [message({"x": ConfigRecord({"a": 1})}, node, "query.who", 0, 5.0) for node in ASKED]


def test_each_message_has_one_reply():
    grid = PromptGrid(Slow())
    first = grid.send_and_receive(asking(), timeout=5.0)
    assert sorted(m.metadata.src_node_id for m in first) == ASKED
    again = grid.send_and_receive(asking(), timeout=5.0)  # replies of the first come along
    assert sorted(m.metadata.src_node_id for m in again) == ASKED
    assert grid.get_node_ids() == ASKED  # everything else is the grid's own
    assert {m.metadata.ttl for m in asking()} == {5.0}  # it lives as long as the server waits


def test_messages_that_flower_does_not_take_fail_the_round_and_nobody_is_waited_for():
    grid = PromptGrid(Slow(takes=False))
    with pytest.raises(RoundFailed, match="took none of the messages"):
        grid.send_and_receive(asking(), timeout=1.0)
    assert grid.send_and_receive([], timeout=1.0) == []


def test_what_sites_say_is_logged_in_its_lines_and_controls_no_terminal(caplog):
    with server._logged(), caplog.at_level(logging.INFO, "flwr"):
        logging.getLogger("flwr").info("Results:\n  T = 2\x1b[2J")
    (text,) = caplog.messages
    assert text.startswith("Results:\n  T = 2")
    assert "\x1b" not in text


JOBS = [
    Job("fedtemp", Federation(5, 2)),
    Job(
        "fednewton",
        Federation(6, 3, rounds=3, epsilon=0.1 + 0.2, delta=1e-7, seed=2**63 - 1),
        {"rows_per_client": 100 / 3},
        **{"secure_aggregation": "masks", "dropout": 0.3, "ledger": "/a b/ü.db", "cap": 1.1},
    ),
]


def test_fields_and_back_through_toml():
    for job in JOBS:
        fields = job.to_fields()
        assert all(type(v) in (str, int, float, bool) for v in fields.values())
        assert Job.from_fields(tomllib.loads(tomli_w.dumps(fields))) == job


def test_fields_that_are_not_allowed_or_missing():
    table: list[tuple[dict[str, Any], str]] = [
        ({"method": "none"}, "unknown method"),
        ({"clients": 2.0}, "must be a whole number"),
        ({"ledger": "here.db"}, "must be an absolute path, got 'here.db'"),
        ({"settings": '{"clip": [1]}'}, "must be a JSON object of plain values"),
        ({"settings": '{"ledger": "x"}'}, "unknown --set key 'ledger'"),
    ]
    fields = JOBS[0].to_fields()
    each_is_refused(table, lambda change: Job.from_fields({**fields, **change}))
    missing = [(key, f"'{key}'") for key in fields]
    others = {key: {k: v for k, v in fields.items() if k != key} for key in fields}
    each_is_refused(missing, lambda key: Job.from_fields(others[key]))
