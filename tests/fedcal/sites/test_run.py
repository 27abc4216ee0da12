"""A run over real sites on a SuperLink that is played by this process."""

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from refusals import refused

import fedcal.strategies.server_app as server
from fedcal.cli.simulate import shown
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process.site_app import site_app
from fedcal.core.checks import FedcalError, InputError, Interrupted
from fedcal.core.scores import rows_by_owner
from fedcal.results import terminal
from fedcal.results.labels import STUDY
from fedcal.run.config import Config
from fedcal.run.engines import superlink
from fedcal.run.engines.flower import InProcessGrid
from fedcal.run.jobs import job_of
from fedcal.run.result import recorded, result_of
from fedcal.sites import server_run as deploy
from fedcal.strategies.server import checkpoint, participation
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.server.transport import ANSWER

pytestmark = pytest.mark.usefixtures("quick_figures")

CLIENTS = 3


class Sites(InProcessGrid):
    """Real sites' apps."""

    def __init__(self, folder: Path, fields: dict[str, Any]) -> None:
        rng = np.random.default_rng(3)
        super().__init__(site_app(folder), [70 + k for k in range(CLIENTS)])
        self._apps = {}
        terms = Job.from_fields(fields, CLIENTS, 3).terms()
        for node, context in self._contexts.items():
            labels = rng.integers(0, 3, 60)
            logits = 3 * (rng.normal(size=(60, 3)) + np.eye(3)[labels])
            site = folder / f"site-{node}"
            rows = rows_by_owner(logits, labels, np.zeros(60, np.int64), 1)
            prepare(site, rows, terms=terms)
            self._apps[node] = site_app(site)
            context.run_config = fields

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


def config(**options: Any) -> Config:
    given = {"method": "fednewton", "rounds": 2, "epsilon": 4.0, "unit": "example", **options}
    given |= {"clients": CLIENTS, "engine": STUDY, "grace": 0.2, "class_names": "0,1,2"}
    return Config(**given)


def carried_out(folder: Path, out: Path, **options: Any) -> Outcome:
    job = replace(job_of(config(**options), None), class_digest="")
    return deploy.carried_out(job, out, "127.0.0.1:1", folder / "ca.crt")


def values(outcome: Outcome) -> list[Any]:
    return [one["values"] for one in outcome.records]


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

    monkeypatch.setattr(participation, "names_of", lambda roster, clients: NAMES)
    link.before, out = without_the_last, tmp_path / "out"
    asked = {"method": method, "rounds": None}
    asked["set"] = {"rows_per_client": 60} if method == "conformal" else {}
    with pytest.warns(UserWarning, match=r"2 of 3 .*, not .*"):
        outcome = carried_out(tmp_path, tmp_path / "work", **asked)
    known, privacy = recorded(config(**asked), job_of(config(**asked), None), outcome, tested=False)
    more: dict[str, Any] = {"given": config(**asked), "test": None, "data": None}
    result = result_of(outcome, known, privacy, **more)
    result.save(out)
    record = json.loads((out / "result.json").read_text())
    assert record["sites"]["absent"] == ["Celle"]
    output = "2 of the 3 enrolled sites answered: Celle took no part."
    assert any(output in sentence for sentence in record["privacy"]["more"])
    assert output in (out / "report.html").read_text().split("</h1>")[0]
    promised = record["sets"]["guarantee"] if method == "conformal" else record["intervals_exclude"]
    assert "rows of Celle, which took no part" in promised[-1]
    terminal.show(shown(result, out))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{method} on 2 of 3 real sites (not Celle)" in printed
    assert output in printed


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
        (out / deploy.STARTED).write_text('{"flower_run": 1}')  # the command is faster
        with monkeypatch.context() as patch:
            patch.setattr(deploy, "_follow", follow)
            with pytest.warns(UserWarning, match="followed"), pytest.raises(Interrupted):
                carried_out(tmp_path, out)

    def in_mid_run(sites: Sites) -> None:
        original = sites.pull_messages

        def pull(ids: Iterable[str]) -> Iterable[Message]:
            if not followed and (out / "server" / "checkpoint.json").exists():
                again(sites)
            return original(ids)

        sites.pull_messages = pull

    link.before = in_mid_run
    found = carried_out(tmp_path, out)
    assert (followed, link.runs) == ([1], 1)
    assert len(values(found)) == 2


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
            carried_out(tmp_path, out)
    carried_out(tmp_path, out)
    assert link.runs == 1
    (out / "server" / "outcome.json").unlink()
    monkeypatch.setattr(deploy, "_ENDS_S", 0.5)
    with checkpoint.alone(out / "server"), pytest.raises(FedcalError, match="end its process"):
        carried_out(tmp_path, out)
    assert link.runs == 1
    carried_out(tmp_path, out)
    assert link.runs == 2


def test_another_roster_does_not_go_on_with_a_run(link, tmp_path):
    out = tmp_path / "out"
    carried_out(tmp_path, out)
    job = replace(job_of(config(), None), roster="others")
    ca = tmp_path / "ca.crt"
    refused("federation of .* choose another name", deploy.carried_out, job, out, "h:1", ca)


def test_a_superlink_that_is_gone_or_hangs_is_not_waited_for(link, tmp_path, monkeypatch):
    """It is killed in mid-run: the server's process dies with it, and writes no last word."""
    monkeypatch.setattr(deploy, "_GONE_S", 0.3)
    for rounds in (0, 1):
        out = tmp_path / f"out-{rounds}"

        def killed(out: Path = out, rounds: int = rounds) -> int:
            link.state = "unknown"
            if rounds:
                checkpoint.note_progress(out / "server", rounds, 2)
            return 1

        monkeypatch.setattr(link, "submit", killed)
        output = "has not reported the release for 0.3 s.*: the same command"
        refused(output, carried_out, tmp_path, out, error=FedcalError)
    hangs = tmp_path / "flwr"
    hangs.write_text("#!/bin/sh\nsleep 600\n")
    hangs.chmod(0o700)
    monkeypatch.setattr(superlink, "COMMAND_S", 0.3)
    (tmp_path / "run").mkdir()
    flower = superlink.FlowerRun(tmp_path / "run", tmp_path, {})
    assert flower.status(1) == superlink.UNKNOWN
    hangs.write_text("""#!/bin/sh\n[ $3 = --format ] && echo '{"runs": [{"status": "ours"}]}'\n""")
    assert flower.status() == "ours"  # the only run
    hangs.write_text("#!/bin/sh\nsleep 600\n")
    refused(r"did not take the run: no answer within 0.3 s", flower.submit, error=FedcalError)
