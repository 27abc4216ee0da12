"""A run over real sites on a SuperLink that is played by this process."""

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from refusals import refused

import fedcal.strategies.server_app as server
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process.site_app import site_app
from fedcal.core.errors import FedcalError, InputError, Interrupted
from fedcal.core.shards import Shards
from fedcal.experiments.cli.simulate import shown
from fedcal.experiments.deploy import run as deploy
from fedcal.experiments.report import terminal
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.engines import superlink
from fedcal.experiments.runs.engines.flower import InProcessGrid
from fedcal.experiments.runs.jobs import job_of
from fedcal.secure_aggregation.committee import Committee
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Member, Roster
from fedcal.strategies.server import participation, run_folder
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.transport import ANSWER, RESULT

pytestmark = pytest.mark.usefixtures("quick_figures")

CLIENTS = 3


class Sites(InProcessGrid):
    """Real sites' apps; all are away when a result comes, if it is so."""

    def __init__(self, folder: Path, fields: dict[str, Any]) -> None:
        rng = np.random.default_rng(3)
        super().__init__(site_app(folder), [70 + k for k in range(CLIENTS)])
        self._apps, self.leave = {}, False
        terms = Job.from_fields(fields, CLIENTS, 3).terms()
        for node, context in self._contexts.items():
            labels = rng.integers(0, 3, 60)
            logits = 3 * (rng.normal(size=(60, 3)) + np.eye(3)[labels])
            site = folder / f"site-{node}"
            rows = Shards.from_owner(logits, labels, np.zeros(60, np.int64), 1)
            prepare(site, rows, terms=terms)
            self._apps[node] = site_app(site)
            context.run_config = fields

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        if self.leave and messages[0].metadata.message_type == RESULT:
            return ["" for _ in messages]  # as Flower's grid does for nodes that are gone
        return super().push_messages(messages)

    def _deliver(self, message: Message) -> Message:
        self._app = self._apps[message.metadata.dst_node_id]
        return super()._deliver(message)


class SuperLink:
    """Runs the server within `submit`, after `before` has had its sites."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.flower, self.runs = folder, self, 0
        self.before: Callable[[Sites], object] = lambda sites: None
        self.state = "running"

    def write_app(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def submit(self) -> int:
        self.runs += 1
        sites = Sites(self.folder, self._fields)
        self.before(sites)
        try:
            server.serve(sites, self._fields)
            self.state = "finished:completed"
        except FedcalError:
            self.state = "finished:failed"
        return self.runs

    def status(self, number: int) -> str:
        return self.state


@pytest.fixture
def link(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "flwr")  # as in the process of a server
    found = SuperLink(tmp_path)

    @contextlib.contextmanager
    def control(address: str, certificates: str) -> Iterator[SuperLink]:
        yield found

    monkeypatch.setattr(deploy, "control", control)
    monkeypatch.setattr(deploy, "_ASK_S", 0.0)
    return found


def config(folder: Path, **options: Any) -> Config:
    given = {"method": "fednewton", "rounds": 2, "epsilon": 4.0, "unit": "example", **options}
    given |= {"clients": CLIENTS, "engine": "grpc", "control": "127.0.0.1:1", "grace": 0.2}
    return Config(**given, root_certificates=str(folder / "ca.crt"))


def values(out: Path) -> list[Any]:
    return [json.loads(line)["values"] for line in (out / "rounds.jsonl").read_text().splitlines()]


def test_another_run_takes_the_place_of_one_that_has_ended(link, tmp_path):
    out = tmp_path / "out"
    refused("no run to continue", deploy.deployed, config(tmp_path), out=out, resume=True)
    link.before = lambda sites: setattr(sites, "leave", True)
    with pytest.warns(UserWarning, match="0 of 3 sites have the calibrator"):
        first = deploy.deployed(config(tmp_path), out=out)
    assert (out / "result.json").exists()
    other = config(tmp_path, epsilon=2.0)
    refused(r"holds a run over real sites: --over", deploy.deployed, other, out=out)
    link.before = lambda sites: None
    second = deploy.deployed(other, out=out, overwrite=True)
    assert second.privacy["epsilon"] == 2.0
    assert second.rounds != first.rounds
    assert values(out) == [one["values"] for one in second.rounds]


NAMES = ("Aachen", "Basel", "Celle")


@pytest.mark.parametrize("method", ["conformal", "evaluate"])
def test_a_site_that_took_no_part_is_named_wherever_a_result_is(
    method, link, tmp_path, monkeypatch, capsys
):
    def without_the_last(sites: Sites) -> None:
        deliver = sites._deliver

        def fails(message: Message) -> Message:
            last = message.metadata.dst_node_id == 70 + CLIENTS - 1
            if last and message.metadata.message_type == ANSWER:
                return Message(RecordDict(), reply_to=message)  # nobody can read it
            return deliver(message)

        sites._deliver = fails

    for module in (participation, deploy):
        monkeypatch.setattr(module, "names_of", lambda roster, clients: NAMES)
    link.before, out = without_the_last, tmp_path / "out"
    more = {"rows_per_client": 60} if method == "conformal" else {}
    asked = config(tmp_path, method=method, rounds=None, set=more)
    with pytest.warns(UserWarning, match=r"2 of 3 .*, not .*"):
        result = deploy.deployed(asked, out=out)
    told = json.loads((out / "result.json").read_text())
    assert told["sites"]["absent"] == ["Celle"]
    said = "2 of the 3 enrolled sites answered: Celle took no part."
    assert any(said in sentence for sentence in told["privacy"]["more"])
    assert said in (out / "report.html").read_text().split("</h1>")[0]
    promised = told["sets"]["guarantee"] if method == "conformal" else told["intervals_exclude"]
    assert "rows of Celle, which took no part" in promised[-1]
    terminal.show(shown(result, out))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{method} on 2 of 3 real sites (not Celle)" in printed
    assert said in printed
    stands = deploy.standing(cast(Any, link), out)
    assert stands.names == {str(70 + k): name for k, name in enumerate(NAMES)}


def test_a_run_that_goes_on_is_followed_and_not_started_twice(link, tmp_path, monkeypatch):
    """Two servers of one run would release the same round twice, charged once."""
    out, followed = tmp_path / "out", list[int]()

    def follow(*_: object) -> None:
        followed.append(link.runs)
        raise Interrupted("")

    def again(sites: Sites) -> None:
        for resume in (False, True):
            with pytest.raises(InputError, match="its run has not ended"):
                server.serve(sites, {**link._fields, "resume": resume})
        refused("has not ended", deploy.deployed, config(tmp_path), out=out)
        (out / deploy.STARTED).write_text('{"flower_run": 1}')  # the command is faster
        with monkeypatch.context() as patch:
            patch.setattr(deploy, "_follow", follow)
            with pytest.warns(UserWarning, match="followed"), pytest.raises(Interrupted):
                deploy.deployed(config(tmp_path), out=out, resume=True)

    def in_mid_run(sites: Sites) -> None:
        original = sites.pull_messages

        def pull(ids: Iterable[str]) -> Iterable[Message]:
            if not followed and (out / "server" / "checkpoint.json").exists():
                again(sites)
            return original(ids)

        sites.pull_messages = pull

    link.before = in_mid_run
    found = deploy.deployed(config(tmp_path), out=out)
    assert (followed, link.runs) == ([1], 1)
    assert values(out) == [one["values"] for one in found.rounds]


def test_a_server_that_does_not_end_with_its_run_is_not_joined_by_another(
    link, tmp_path, monkeypatch
):
    """And an outcome that nobody waited for is fetched, not made again."""
    out = tmp_path / "out"

    def interrupted(*_: object) -> None:
        raise Interrupted("")

    with monkeypatch.context() as patch:
        patch.setattr(deploy, "_follow", interrupted)
        with pytest.raises(Interrupted):
            deploy.deployed(config(tmp_path), out=out)
    found = deploy.deployed(deploy.asked_for(out, {}), out=out, resume=True)
    assert link.runs == 1
    assert values(out) == [one["values"] for one in found.rounds]
    (out / "server" / "outcome.json").unlink()
    monkeypatch.setattr(deploy, "_ENDS_S", 0.5)
    with run_folder.alone(out / "server"), pytest.raises(FedcalError, match="end its process"):
        deploy.deployed(config(tmp_path), out=out, resume=True)
    assert link.runs == 1
    deploy.deployed(config(tmp_path), out=out, resume=True)
    assert link.runs == 2


def test_a_superlink_that_is_gone_or_hangs_is_not_waited_for(link, tmp_path, monkeypatch):
    """It is killed in mid-run: the server's process dies with it, and writes no last word."""
    monkeypatch.setattr(deploy, "_GONE_S", 0.3)
    for rounds, next_ in ((0, "start the run again"), (1, "fedcal deploy resume --out {} goes on")):
        out = tmp_path / f"out-{rounds}"

        def killed(out: Path = out, rounds: int = rounds) -> int:
            link.state = "unknown"
            if rounds:
                (out / "server" / "checkpoint.json").touch()
                run_folder.note_progress(out / "server", rounds, 2)
            return 1

        monkeypatch.setattr(link, "submit", killed)
        said = f"has not reported the run for 0.3 s.*: once .*{next_.format(out)}"
        refused(said, deploy.deployed, config(tmp_path), out=out, error=FedcalError)
    hangs = tmp_path / "flwr"
    hangs.write_text("#!/bin/sh\nsleep 600\n")
    hangs.chmod(0o700)
    monkeypatch.setattr(superlink, "COMMAND_S", 0.3)
    (tmp_path / "run").mkdir()
    flower = superlink.FlowerRun(tmp_path / "run", tmp_path, {})
    assert flower.status(1) == superlink.UNKNOWN
    refused(r"did not take the run: no answer within 0.3 s", flower.submit, error=FedcalError)


def test_a_federation_file_says_how_many_there_are(link, tmp_path):
    """And what its sums cannot hide is said before anything is started."""
    keys = [SigningKey(bytes([n]) * 32) for n in range(1, 4)]
    sites = tuple(Member(f"site {n}", key.public) for n, key in enumerate(keys))
    file = tmp_path / "federation.toml"
    given = replace(config(tmp_path), federation=str(file), trust="distributed")
    for threshold, changed, said in (
        (2, {"clients": 4}, r"number of clients, by .*federation.toml, must be 3, got 4"),
        (
            2,
            {"quorum": 0.3},
            "a secure sum of 1 contributions, 0 of which .* leaves 1 honest",
        ),
        (
            3,
            {"colluding": 2},
            "a secure sum of 3 contributions, 2 of which .* leaves 1 honest",
        ),
    ):
        file.write_text(Roster("hearts", sites, Committee((0, 1, 2), threshold)).to_toml())
        refused(said, deploy.deployed, replace(given, **changed), out=tmp_path / "out")
    assert link.runs == 0
    assert not (tmp_path / "out").exists()
    job = job_of(replace(given, clients=3), None)
    assert (job.federation.colluding, job.plan.quorum) == (1, 3)
