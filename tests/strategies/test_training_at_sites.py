"""Training over real sites, in this process: bits, delivery, a server that goes on, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

import fedcal.strategies.server_app as server
from fedcal.artifact import Holdout
from fedcal.clients.job_facts import Booked
from fedcal.clients.prepared import prepare
from fedcal.clients.records import SiteRecords
from fedcal.clients.results import METRICS, RESULTS
from fedcal.clients.site_app import site_app
from fedcal.clients.site_records import RECORDS
from fedcal.errors import InputError
from fedcal.experiments.engines.flower import InProcessGrid
from fedcal.experiments.engines.inline import run_inline
from fedcal.privacy import Federation
from fedcal.privacy.ledger import Ledger
from fedcal.shards import Shards
from fedcal.strategies.checkpoint import Checkpoint
from fedcal.strategies.flower import ANSWER
from fedcal.strategies.job import Job, terms_of_job
from fedcal.strategies.outcome import Outcome
from fedcal.training.model import TrainedModel

CLIENTS, CLASSES, WIDTH, ROUNDS = 3, 3, 5, 4
NAMES = ("cat", "dog", "owl")
NODES = [40, 41, 42]


def rows(n: int = 240, empty: bool = False) -> Shards:
    rng = np.random.default_rng(2)
    x = rng.normal(0, 0.5, (n, WIDTH)).astype(np.float32)
    y = (x[:, :CLASSES] + rng.gumbel(0, 0.2, (n, CLASSES))).argmax(axis=1)
    owner = rng.integers(0, CLIENTS - empty, n)
    return Shards.from_owner(np.zeros((n, CLASSES)), y, owner, CLIENTS, inputs=x)


def job_of(method: str = "fedsgd", **change: Any) -> Job:
    federation = Federation(
        CLIENTS, CLASSES, ROUNDS, epsilon=8.0, unit="example", **change.pop("federation", {})
    )
    settings = {"shape": WIDTH, "batch": 40.0, "rows_per_client": 80.0}
    if method == "dp-fedavg":
        settings = {"shape": WIDTH}
    waits = {"tolerant": True, "timeout": 5.0, "grace": 0.2}
    return Job(method, federation, settings, **{**waits, **change})


class Sites(InProcessGrid):
    """Real sites' apps over folders of their own, with the bits of a simulation."""

    def __init__(self, folder: Path, job: Job, shards: Shards, **fields: Any) -> None:
        for k in range(CLIENTS):
            mine, test = shards.block(k, k + 1), shards.block(0, 1)
            prepare(
                folder / f"site-{k}",
                mine,
                test=(test.logits, test.labels),
                test_inputs=test.inputs,
                names=NAMES,
                number=k,
                simulated=True,
            )
        self._apps = [site_app(folder / f"site-{k}", terms_of_job) for k in range(CLIENTS)]
        super().__init__(self._apps[0], NODES)
        here = {"data": "", "partition": "", "out": str(folder / "out"), **server.FRESH}
        self.fields = {**job.to_fields(), "classes": 0, "input": "", **here, **fields}
        self.dies = 0
        for context in self._contexts.values():
            context.run_config = self.fields

    def _deliver(self, message: Message) -> Message:
        self._app = self._apps[NODES.index(message.metadata.dst_node_id)]
        return super()._deliver(message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        for reply in replies:
            of = reply.metadata
            if of.message_type == ANSWER and int(of.group_id) == self.dies:
                raise _Stop
        return replies


class _Stop(Exception):
    """The server's process dies."""


@pytest.mark.parametrize("method", ["fedsgd", "dp-fedavg"])
def test_a_model_of_the_same_bits_reaches_each_site(method: str, tmp_path: Path) -> None:
    job, shards = job_of(method), rows()
    sites = Sites(tmp_path, job, shards, deliver=True)
    server.serve(sites, sites.fields)
    found = Outcome.load(tmp_path / "out")
    want = job.run(lambda strategy: run_inline(strategy, shards))
    assert isinstance(found.artifact, TrainedModel)
    assert isinstance(want.artifact, TrainedModel)
    np.testing.assert_array_equal(found.artifact.w, want.artifact.w)
    assert (found.records, found.history) == (want.records, [])
    test = shards.block(0, 1)
    assert test.inputs is not None
    predicted = want.artifact.predict(test.inputs).argmax(axis=1)
    for k in range(CLIENTS):
        (kept,) = (tmp_path / f"site-{k}" / RESULTS).iterdir()
        judged = json.loads((kept / METRICS).read_text())["after"]
        assert judged["accuracy"] == (predicted == test.labels).mean()
        (booked,) = _booked(tmp_path, k)
        assert booked.answered == tuple(range(1, ROUNDS + 1))
        assert booked.closed == "finished"


def _booked(folder: Path, site: int) -> tuple[Booked, ...]:
    with SiteRecords(folder / f"site-{site}" / RECORDS) as records:
        return records.booked()


@pytest.mark.parametrize("number", [1, 3])  # before there is any state, and after
def test_a_server_that_stopped_goes_on_and_counts_every_round_once(
    number: int, tmp_path: Path
) -> None:
    file = tmp_path / "ledger.db"
    job, shards = job_of(ledger=str(file), cap=8.0), rows()
    sites = Sites(tmp_path, job, shards)
    sites.dies = number
    with pytest.raises(_Stop):
        server.serve(sites, sites.fields)
    assert (Checkpoint.load(tmp_path / "out").state is None) == (number == 1)
    again = Sites(tmp_path, job, shards, resume=True)
    server.serve(again, again.fields)
    found = Outcome.load(tmp_path / "out")
    want = replace(job, ledger=None, cap=None).run(lambda one: run_inline(one, shards))
    np.testing.assert_array_equal(found.artifact.arrays()["w"], want.artifact.arrays()["w"])
    assert found.records == want.records
    assert (found.bytes_up, found.bytes_down) == (want.bytes_up, want.bytes_down)
    with Ledger(file) as ledger:
        (entry,) = ledger.entries()
    assert entry.charged == tuple(range(1, ROUNDS + 1))


def test_a_site_without_rows_and_one_that_is_away_stop_nothing(tmp_path: Path) -> None:
    job, shards = job_of(), rows(empty=True)
    sites = Sites(tmp_path, job, shards)
    server.serve(sites, sites.fields)
    found = Outcome.load(tmp_path / "out")
    gone = job.run(lambda s: run_inline(s, shards, unavailable=lambda number: np.array([2])))
    np.testing.assert_array_equal(found.artifact.arrays()["w"], gone.artifact.arrays()["w"])


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("fedsgd", {"shape": 6}, "inputs of shape 5, and the network reads inputs of shape 6"),
        ("fedsgd", {"shape": "28x28", "network": "cnn"}, "reads inputs of shape 28x28"),
        ("fednewton", {}, "has rows to train on and no scores: fednewton needs scores"),
    ],
)
def test_rows_of_another_kind_stop_the_run_before_anything_is_asked(
    method: str, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    if settings.get("network") == "cnn":
        pytest.importorskip("torch")
    file = tmp_path / "ledger.db"
    rows_of = {"rows_per_client": 80.0} if method == "fedsgd" else {}
    job = replace(job_of(ledger=str(file), cap=8.0), method=method, settings=settings | rows_of)
    sites = Sites(tmp_path, job, rows())
    with pytest.raises(InputError, match=said) as error:
        server.serve(sites, sites.fields)
    assert "\n" not in str(error.value)
    with Ledger(file) as ledger:
        assert ledger.entries() == ()
    assert not any(_booked(tmp_path, k) for k in range(CLIENTS))


def test_a_model_is_judged_on_what_it_reads() -> None:
    """Its own probabilities, never those of the scores that lie beside the rows."""
    model = TrainedModel("linear", (WIDTH,), CLASSES, np.zeros(CLASSES * (WIDTH + 1)))
    z, labels = 9.0 * np.eye(CLASSES), np.arange(CLASSES)
    sure = Holdout(z, np.eye(CLASSES), labels)
    assert model.judge(sure) == {}  # it reads other inputs, and these rows have none
    assert model.judged_page(sure) == []
    flat = model.judge(replace(sure, inputs=np.ones((CLASSES, WIDTH))))["after"]
    assert flat["nll"] == pytest.approx(np.log(CLASSES))
    of_logits = TrainedModel("linear", (CLASSES,), CLASSES, np.zeros(CLASSES * (CLASSES + 1)))
    assert of_logits.judge(sure)["after"]["nll"] == pytest.approx(np.log(CLASSES))
