"""`fedcal site ledger` and `fedcal site restored`."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from fedcal.clients.job_facts import CLAIMED, OWN_NOISE, JobFacts, Limits
from fedcal.clients.records import SiteRecords
from fedcal.clients.site_records import RECORDS

FACTS = JobFacts(
    *("fedtemp", "user", "distributed", "zero-out", "gaussian", 1.0, 1e-6, 9, OWN_NOISE),
    *("hub.example:9092", math.inf),
)
Says = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A site that answered three jobs: by its own noise, by the server's, and exactly."""
    folder = tmp_path / "state"
    folder.mkdir()
    others = (
        replace(FACTS, trust="central", verified=CLAIMED, epsilon=0.5, unit="example"),
        replace(FACTS, trust="secagg", epsilon=math.inf, delta=0.0),
    )
    with SiteRecords(folder / RECORDS, limits=Limits(4.0, 1e-5)) as records:
        for about in (FACTS, *others):
            job = sha256(repr(about).encode()).hexdigest()
            for round in (1, 2):
                records.answer(job, about, round, "q", lambda: b"words")
        records.finish(job)
    return folder


def test_what_a_server_or_a_file_says_controls_no_terminal(state: Path, says: Says) -> None:
    bad = replace(FACTS, method="fed\x1b[2Jtemp\n[red]", server="hub\u202e.example", epsilon=0.1)
    with SiteRecords(state / RECORDS) as records:
        records.answer("0" * 64, bad, 1, "q", lambda: b"words")
    code, out, _ = says("site", "ledger", "--state", state)
    assert code == 0
    assert "fed\\x1b[2Jtemp\\n[red]" in out
    _, _, err = says("site", "ledger", "--state", state / "\x1b[2J\u202e\x9b")
    for shown in (out, err):
        assert not set("\x1b\u202e\x9b") & set(shown)
    assert len(err.splitlines()) == 1


def test_the_ledger_says_what_was_spent_and_what_is_left(state: Path, says: Says) -> None:
    code, out, err = says("site", "ledger", "--state", state)
    assert (code, err) == (0, "")
    lines = [line.replace("\u2502", " ").split() for line in out.splitlines()]
    jobs = [line for line in lines if "hub.example:9092" in line]
    told = [" ".join(line[line.index("fedtemp") :]) for line in jobs]
    assert told == [
        "fedtemp user 1 1e-06 own noise 2 of 9 open",
        "fedtemp example 0.5 1e-06 claimed 2 of 9 open",
        "fedtemp user exact none 2 of 9 finished",
    ]
    assert ["user", "1", "1e-06"] in lines
    assert ["example", "0.5", "1e-06"] in lines
    # for a row the user's charge is twice its epsilon and 1 + e^epsilon times its delta
    last = next(line for line in lines if line[:1] == ["all,"])
    assert " ".join(last) == "all, for each example 2.5 4 4.71828e-06 1e-05"


def test_the_ledger_is_told_to_programs_too(state: Path, says: Says) -> None:
    code, out, _ = says("site", "ledger", "--state", state, "--json")
    told = json.loads(out)
    assert code == 0
    assert [job["epsilon"] for job in told["jobs"]] == [1.0, 0.5, None]
    assert told["jobs"][0]["answered"] == [1, 2]
    assert told["totals"]["user"] == {"epsilon": 1.0, "delta": 1e-6}
    delta = pytest.approx((2 + math.e) * 1e-6)
    assert told["account"] == {"unit": "example", "epsilon": 2.5, "delta": delta}
    assert (told["limits"], told["restored"]) == ({"epsilon": 4.0, "delta": 1e-5}, False)


def test_a_restored_site_says_so_until_its_jobs_are_closed(
    tmp_path: Path, state: Path, says: Says
) -> None:
    shutil.copytree(state, tmp_path / "backup")
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    assert "put back from a backup" in says("site", "ledger", "--state", state)[1]
    code, out, _ = says("site", "restored", "--state", state)
    assert code == 0
    assert out.startswith("Jobs that were open and are closed now: 2. New jobs are answered again.")
    out = says("site", "ledger", "--state", state)[1]
    assert "put back" not in out
    assert out.count("closed by the operator") == 2


def test_what_was_spent_elsewhere_is_said_and_booked(
    state: Path, says: Says, tmp_path: Path
) -> None:
    code, _, err = says("site", "restored", "--state", state, "--spent", "1.5,1e-6,rows")
    assert (code, "unit of --spent" in err) == (2, True)
    assert says("site", "restored", "--state", state, "--spent", "0.25,1e-6,example")[0] == 0
    told = json.loads(says("site", "ledger", "--state", state, "--json")[1])
    assert (told["account"]["epsilon"], told["jobs"][-1]["method"]) == (2.75, "carried over")
    none = tmp_path / "none"
    none.mkdir()
    for command in ("ledger", "restored"):
        code, out, err = says("site", command, "--state", none)
        assert (code, out) == (2, "")
        assert err.startswith("fedcal: error: ")
        assert "no records of a site" in err.replace("\n", " ")
        assert list(none.iterdir()) == []
