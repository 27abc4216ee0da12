"""What a site keeps of what it spent, and what an operator must say after a restored backup."""

import math
import re
import shutil
from dataclasses import replace
from hashlib import sha256

import pytest

from fedcal.cli.main import exit_code_of
from fedcal.clients.site.policy import CLAIMED, OWN_NOISE, JobFacts, account
from fedcal.clients.site.store import RECORDS, SiteRecords

FACTS = JobFacts(
    *("0" * 64, "fedtemp", "user", "distributed", "zero-out", "gaussian", 1.0, 1e-6, 9, OWN_NOISE),
    *("hub.example:9092", math.inf),
)


@pytest.fixture
def says(capsys):
    """Runs a command: exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = exit_code_of([str(word) for word in words])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def state(tmp_path):
    """A site that answered three jobs: by its own noise, by the server's, and exactly."""
    folder = tmp_path / "kit" / "state"
    folder.mkdir(parents=True)
    others = (
        replace(FACTS, trust="central", verified=CLAIMED, epsilon=0.5, unit="example"),
        replace(FACTS, trust="secagg", epsilon=math.inf, delta=0.0),
    )
    with SiteRecords(folder / RECORDS) as records:
        for about in (FACTS, *others):
            about = replace(about, job=sha256(repr(about).encode()).hexdigest())
            for round in (1, 2):
                records.answer(about, round, "q", lambda: b"words")
        records.finish(about.job)
    return folder


def books(state):
    """Whether nothing is answered, the account's epsilon, and what was booked."""
    with SiteRecords(state / RECORDS) as records:
        booked = records.booked()
        return records.refusal, math.fsum(cost for cost, _ in account(booked)[1]), booked


def spend(state, epsilon, job):
    with SiteRecords(state / RECORDS) as records:
        about = replace(FACTS, job=job * 64, epsilon=epsilon)
        records.answer(about, 1, "q", lambda: b"words")


def put_back_the_records(state, backup):
    (state / RECORDS).write_bytes((backup / RECORDS).read_bytes())


def put_back_all_but_results(state, backup):
    shutil.copytree(backup, state, dirs_exist_ok=True)


@pytest.mark.parametrize(
    ("put_back", "shown"),
    [(put_back_the_records, 0.75), (put_back_all_but_results, 0.25)],
    ids=["the key's file", "results"],
)
def test_no_less_is_booked_than_receipts_show(tmp_path, state, says, put_back, shown):
    """Ledger 2.5; then .5 in a run without a result, and .25 in one whose result is there."""
    shutil.copytree(state, tmp_path / "backup")
    spend(state, 0.5, "a")
    spend(state, 0.25, "b")
    result = state / "results" / "last"
    result.mkdir(parents=True)
    (result / "receipt").write_text(f"{'b' * 64} 0.25,1e-06,user")
    put_back(state, tmp_path / "backup")

    def epsilon():
        refusal, spent, _ = books(state)
        return refusal != "", spent

    least = f"{2 * shown:g},"  # a user's charge counts twice for the examples of this ledger
    for words in (("--spent", "nothing"), ("--spent", f"{2 * shown - 0.1},1e-5,example")):
        code, out, err = says("site", "restored", state.parent, *words)
        assert (code, out) == (2, "")
        assert re.search(f"at least {re.escape(least)}[0-9.e-]+,example", " ".join(err.split()))
        assert epsilon() == (True, 2.5)
    assert says("site", "restored", state.parent)[0] == 2
    for spent, code in ((f"{shown},1,user", 2), (f"{shown},2e-06,user", 0)):
        assert says("site", "restored", state.parent, "--spent", spent)[0] == code
    assert epsilon() == (False, 2.5 + 2 * shown)


def test_what_was_spent_elsewhere_is_reported_and_booked(state, says, tmp_path):
    code, _, err = says("site", "restored", state.parent, "--spent", "1.5,1e-6,rows")
    assert (code, "unit of --spent" in err) == (2, True)
    assert says("site", "restored", state.parent, "--spent", "0.25,1e-6,example")[0] == 0
    _, spent, booked = books(state)
    assert (spent, booked[-1].method) == (2.75, "carried over")
    none = tmp_path / "none"
    none.mkdir()
    assert says("site", "restored", none)[0] == 2
    assert list(none.iterdir()) == []
