"""What goes wrong between real sites and a real SuperLink, and what becomes of the run."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from deployment import SITES, Deployment
from machine import Machine
from procfs import descendants

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    with Machine(tmp_path_factory.mktemp("deployment")) as machine:
        there = Deployment(machine)
        there.up()
        for name in SITES:
            there.site(name)
        machine.until(lambda: machine.online(there.env) == 3)
        yield there


def done(run: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    out, err = run.communicate(timeout=300)
    lines = [line for line in err.splitlines() if not line.startswith("fedcal: fednewton: ")]
    return run.returncode, out, lines


def test_a_site_that_is_killed_in_mid_round_comes_back(there):
    run = there.run("killed")
    there.after_round(1, "killed", run)
    guard = there.machine.trees["site-c"]
    for process in descendants(guard._guard.pid):
        if b"flower-supernode" in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)
    code, _, lines = done(run)
    assert (code, there.charged("killed")) == (0, (1, 2, 3, 4))
    log = there.folder / "site-c" / "site.log"
    assert any("2 of 3 clients answered" in line for line in lines), log.read_text()
    there.machine.until(lambda: log.read_text().count("waiting for questions") == 2)


def test_after_longer_the_run_is_gone_on_with_and_charged_once(there):
    run = there.run("long")
    there.after_round(2, "long", run)
    kept = json.loads((there.folder / "long" / "server" / "checkpoint.json").read_text())
    there.machine.trees.pop("superlink").end()
    time.sleep(75)
    there.superlink()
    code, out, lines = done(run)
    assert (code, out) == (1, "")
    assert lines[-1].startswith("fedcal: error: Flower ended the run as 'finished:failed'; fedcal")
    there.machine.until(lambda: there.machine.online(there.env) == 3)
    code, _, lines = done(there.run("long"))
    assert (code, lines[-1].partition("has not ended")[1]) == (2, "has not ended")
    code, _, lines = done(there.fedcal("deploy", "resume", "--out", "long", "--epsilon", "1"))
    assert (code, lines) == (
        2,
        [
            "fedcal: error: a run goes on as it began: --epsilon cannot change "
            "(allowed: control, root_certificates, timeout, grace)"
        ],
    )
    code, _, lines = done(there.fedcal("deploy", "resume", "--out", "long"))
    assert (code, there.charged("long")) == (0, (1, 2, 3, 4)), lines
    rounds = (there.folder / "long" / "rounds.jsonl").read_text().splitlines()
    assert len(rounds) == 4
    for before, after in zip(kept["releases"], map(json.loads, rounds), strict=False):
        assert before["values"] == after["values"]  # what was released stays what it was
    code, out, _ = done(there.fedcal("deploy", "status", "--out", "long", "--json"))
    told = json.loads(out)
    assert (code, told["run"]["done"], told["run"]["planned"]) == (0, 4, 4)
    assert [site["status"] for site in told["sites"]] == ["online"] * 3


def test_a_run_that_is_stopped_can_be_gone_on_with(there):
    run = there.run("stopped")
    there.after_round(1, "stopped", run)
    run.send_signal(signal.SIGINT)  # the command alone
    code, _, lines = done(run)
    assert code == 130
    assert "the run goes on without this command: fedcal deploy status --out" in lines[-1]
    code, _, lines = done(there.fedcal("deploy", "stop", "--out", "stopped"))
    if code:  # it was faster
        assert there.charged("stopped") == (1, 2, 3, 4), lines
        return
    code, _, lines = done(there.fedcal("deploy", "resume", "--out", "stopped"))
    assert (code, there.charged("stopped")) == (0, (1, 2, 3, 4)), lines
