"""What an operator must say of a site's records after a backup was put back, by command."""

import math
from dataclasses import replace

import pytest
from policies import FACTS

from fedcal.clients.site.policy import account
from fedcal.clients.site.store import RECORDS, SiteRecords


def test_receipts_of_earlier_versions_count(call, tmp_path):
    """Of a user .25 counts twice for examples; a job that the records have is no more."""
    (state := tmp_path / "state").mkdir()
    spend(state, "2", epsilon=0.5, unit="example")
    for job, words in (("2", "0.5,1e-06,example"), ("b", "0.25,1e-06,user")):
        (result := state / "results" / job).mkdir(parents=True)
        (result / "receipt").write_text(f"{job * 64} {words}")
    for spent, code in (("nothing", 2), ("0.4,1e-5,example", 2), ("0.25,1e-06,user", 0)):
        line = call("site", "restored", tmp_path, "--spent", spent, code=code)
        assert code == 0 or "at least 0.5," in line


@pytest.fixture
def state(tmp_path):
    """A site that answered three jobs, one of them exactly, whose records are then put back."""
    folder = tmp_path / "kit" / "state"
    folder.mkdir(parents=True)
    spend(folder, "1")
    spend(folder, "2", epsilon=0.5, unit="example")
    spend(folder, "3", epsilon=math.inf, delta=0.0)
    backup = (folder / RECORDS).read_bytes()
    spend(folder, "4", epsilon=0.75)
    (folder / RECORDS).write_bytes(backup)
    return folder


def spend(state, job, **change):
    with SiteRecords(state / RECORDS) as records:
        records.answer(replace(FACTS, job=job * 64, **change), 1, "q", lambda: b"words")


def books(state):
    """Whether nothing is answered, the account's epsilon, and what was booked last."""
    with SiteRecords(state / RECORDS) as records:
        booked = records.booked()
        spent = math.fsum(cost for cost, _ in account(booked)[1])
        return records.refusal != "", spent, booked[-1].method


def test_no_less_is_booked_than_the_key_s_file_shows(state, call, tmp_path):
    """Ledger 2.5; then .75 of a user, which counts twice for the examples of this ledger."""
    for spent in ("nothing", "1.4,1e-5,example"):
        line = call("site", "restored", state.parent, "--spent", spent, code=2)
        assert "show at least 1.5," in line
    assert "unit of --spent" in call(
        "site", "restored", state.parent, "--spent", "1,0,rows", code=2
    )
    call("site", "restored", state.parent, code=2)
    for spent, code in (("0.75,1,user", 2), ("0.75,2e-06,user", 0)):
        assert books(state) == (True, 2.5, "fedtemp")
        call("site", "restored", state.parent, "--spent", spent, code=code)
    assert books(state) == (False, 4.0, "carried over")
    call("site", "restored", tmp_path, code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]
