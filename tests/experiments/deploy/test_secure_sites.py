"""Sites with keys, a federation and policies of their own, by the commands that a user types."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deployment import SITES
from federated import Federated
from machine import Machine
from procfs import descendants

from fedcal import simulate

pytestmark = pytest.mark.slow

ALL, MOST = ("--quorum", "1"), ("--quorum", "0.6")
ONCE = ("--method", "fedoneshot", "--epsilon", "1", "--unit", "example", "--trust", "distributed")
EXACT = ("--method", "fednewton", "--rounds", "2")
NOISY = (*EXACT, *ONCE[2:])
AGAIN = ", again, with the same numbers"


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    with Machine(tmp_path_factory.mktemp("federated")) as machine:
        there = Federated(machine)
        there.up()
        digest = there.agree()
        for name in SITES:
            there.member(name, digest)
        machine.until(lambda: machine.online(there.env) == 3)
        yield there


def restarted(there: Federated, digest: str, state: str, **changed: str | float) -> Path:
    """The last site, with other rules and a folder of its own; what it logs."""
    there.machine.trees.pop("site-c").end()
    there.machine.until(lambda: there.machine.online(there.env) == 2)
    folder = there.member("c", digest, state=state, **changed)
    there.machine.until(lambda: there.machine.online(there.env) == 3)
    return folder / "site.log"


def done(run: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit code of a command, and what it said but for its progress."""
    _, err = run.communicate(timeout=300)
    progress = ("fedcal: fedoneshot: ", "fedcal: fednewton: ", "fedcal: fedbin: ")
    return run.returncode, [line for line in err.splitlines() if not line.startswith(progress)]


def crash(there: Federated, name: str) -> None:
    """End a service as a machine that loses its power does."""
    tree = there.machine.trees.pop(name)
    alive = descendants(tree._guard.pid)
    tree.kill()
    for process in alive:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def until(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("trust", "vouches"), [("distributed", "own noise"), ("central", "claimed")]
)
def test_a_site_books_each_run_once(there, trust, vouches):
    code, lines = done(there.start(trust, *ONCE[:-1], trust, *ALL))
    assert code == 0, lines
    for name in SITES:
        *_, job = there.books(f"site-{name}")
        told = (job["epsilon"], job["verified"], job["answered"], job["closed"], job["trust"])
        assert told == (1.0, vouches, [1], "finished", trust)
    privacy = there.result(trust)["privacy"]
    assert (privacy["epsilon"], privacy["noise_source"]) == (1.0, "system")


@pytest.mark.parametrize(
    ("out", "given", "step"),
    [("cut-exact", EXACT, "answered: "), ("cut-noisy", NOISY, "confirmed: ")],
)
def test_a_server_that_dies_in_mid_round_charges_nobody_twice(there, out, given, step):
    """It dies between the contributions and the opening of their sum, in the second round."""
    private = given is NOISY
    ledger = ("--ledger", f"{out}.db", "--cap", "1") if private else ()
    before = {name: len(there.log(name)) for name in SITES}

    def reached() -> bool:
        news = [there.log(name)[before[name] :] for name in SITES]
        there_is = [any(step in line and "round 2" in line for line in n.split("\n")) for n in news]
        return any(there_is) if private else all(there_is)

    run = there.start(out, *given, *ALL, *ledger)
    until(reached, run)
    crash(there, "executor")
    crash(there, "superlink")
    run.send_signal(signal.SIGINT)
    assert done(run)[0] in (1, 130)
    assert not (there.folder / out / "result.json").exists()
    there.superlink()
    there.executor()
    there.machine.until(lambda: there.machine.online(there.env) == 3)
    code, lines = done(there.fedcal("deploy", "resume", "--out", out))
    assert code == 0, (lines, there.log("a"))
    for name in SITES:
        *_, job = there.books(f"site-{name}")
        assert (job["answered"], job["closed"]) == ([1, 2], "finished")
        told = there.log(name)[before[name] :]
        assert (told.count("answered: "), told.count(AGAIN)) == (3, 1), told
    if private:
        assert there.charged(out) == (1, 2)
        assert there.result(out)["privacy"]["releases"] == 2
    else:
        assert (job["epsilon"], job["trust"]) == (None, "secagg")
        options = {"secure_aggregation": "protocol", "committee": "3,2", "quorum": 1.0}
        options |= {"partition": "natural", "method": "fednewton", "rounds": 2}
        result = simulate(str(there.together()), **options)
        lines = (there.folder / out / "rounds.jsonl").read_text().splitlines()
        learned = ("values", "temperature")
        found = [[json.loads(line)[key] for key in learned] for line in lines]
        assert found == [[record[key] for key in learned] for record in result.rounds]


def does_not_start(names: str) -> str:
    return (
        f"fedcal: error: the run does not start: {names} cannot take part, as the lines above say; "
        "no question was sent and nothing is booked. --without-unready continues without them"
    )


def test_a_run_goes_on_without_a_site_that_has_spent_its_budget(there):
    log = restarted(there, there.agree(), "spent", total=1.0)
    spent = "fedcal: warning: c: its remaining budget does not suffice for this run"
    for out, said in (
        ("first", []),
        ("second", [spent, does_not_start("c")]),
        (
            "third",
            [
                spent,
                "fedcal: warning: round 1: 2 of 3 clients answered, not c",
                "fedcal: warning: 2 of 3 sites have the calibrator, not c",
            ],
        ),
    ):
        more = ("--without-unready",) if out == "third" else ()
        code, lines = done(there.start(out, *ONCE, *MOST, *more))
        answered = log.read_text().count("answered: run")
        assert (code, answered) == (2 if out == "second" else 0, 1), lines
        assert [line for line in lines if line.startswith("fedcal: ")] == said
    told = json.loads((there.folder / "third" / "result.json").read_text())["sites"]
    assert told == {"enrolled": 3, "answered": 2, "absent": ["c"], "missed": {}}
    code, lines = done(there.fedcal("deploy", "status", "--out", "third"))
    assert code == 0, lines
    assert log.read_text().count("unit example: epsilon 1 of 1 is spent") == 2
    assert len(there.books("spent")) == 1


def test_a_run_stops_where_too_few_take_part(there):
    """One policy is out of date; the next site was given another federation."""
    booked = [there.books(f"site-{name}") for name in SITES]
    log = restarted(there, there.agree(), "late", expires="2026-01-01")
    code, (warned, error) = done(there.start("late-run", *ONCE, *ALL))
    assert (code, error) == (2, does_not_start("c"))
    assert warned.startswith("fedcal: warning: c: this site's policy refuses the day: asked is")
    assert "policy refuses the day: asked is" in log.read_text()
    assert there.books("late") == []
    other = there.agree("lungs", "lungs.toml")
    log = restarted(there, other, "other", file="lungs.toml")
    code, (warned, error) = done(there.start("other-run", *ONCE, *ALL))
    assert (code, error) == (2, does_not_start("c"))
    assert warned.startswith("fedcal: warning: c: this site's policy refuses the roster")
    assert "cannot take part: this site's policy refuses the roster" in log.read_text()
    assert there.books("other") == []
    assert [there.books(f"site-{name}") for name in SITES] == booked  # nobody has paid for these
