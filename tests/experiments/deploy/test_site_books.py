"""What a site keeps and shows: its ledger, its key and its federation."""

import json
import math
import re
import shutil
import stat
from dataclasses import replace
from hashlib import sha256

import pytest
from policies import policy_text

from fedcal.clients.site.account import CLAIMED, OWN_NOISE, JobFacts
from fedcal.clients.site.prepared import POLICY
from fedcal.clients.site.store import RECORDS, SiteRecords
from fedcal.experiments.cli.main import _run
from fedcal.secure_aggregation.keys import read_key
from fedcal.secure_aggregation.roster import Roster

FACTS = JobFacts(
    *("0" * 64, "fedtemp", "user", "distributed", "zero-out", "gaussian", 1.0, 1e-6, 9, OWN_NOISE),
    *("hub.example:9092", math.inf),
)


@pytest.fixture
def says(capsys):
    """Runs a command: exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = _run([str(word) for word in words])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def state(tmp_path):
    """A site that answered three jobs: by its own noise, by the server's, and exactly."""
    folder = tmp_path / "state"
    folder.mkdir()
    others = (
        replace(FACTS, trust="central", verified=CLAIMED, epsilon=0.5, unit="example"),
        replace(FACTS, trust="secagg", epsilon=math.inf, delta=0.0),
    )
    (folder / POLICY).write_text(policy_text(epsilon_total=4.0, delta_total=1e-5))
    with SiteRecords(folder / RECORDS) as records:
        for about in (FACTS, *others):
            about = replace(about, job=sha256(repr(about).encode()).hexdigest())
            for round in (1, 2):
                records.answer(about, round, "q", lambda: b"words")
        records.finish(about.job)
    return folder


def test_what_a_server_or_a_file_says_controls_no_terminal(state, says):
    bad = replace(FACTS, method="fed\x1b[2Jtemp\n[red]", server="hub\u202e.example", epsilon=0.1)
    with SiteRecords(state / RECORDS) as records:
        records.answer(bad, 1, "q", lambda: b"words")
    code, out, _ = says("site", "ledger", "--state", state)
    assert code == 0
    assert "fed\\x1b[2Jtemp\\n[red]" in out
    _, _, err = says("site", "ledger", "--state", state / "\x1b[2J\u202e\x9b")
    for shown in (out, err):
        assert not set("\x1b\u202e\x9b") & set(shown)
    assert len(err.splitlines()) == 1


def test_the_ledger_says_what_was_spent_and_what_is_left(state, says):
    code, out, _ = says("site", "ledger", "--state", state, "--json")
    told = json.loads(out)
    assert code == 0
    assert [job["epsilon"] for job in told["jobs"]] == [1.0, 0.5, None]
    assert told["jobs"][0]["answered"] == [1, 2]
    assert told["totals"]["user"] == {"epsilon": 1.0, "delta": 1e-6}
    delta = pytest.approx((2 + math.e) * 1e-6)
    assert told["account"] == {"unit": "example", "epsilon": 2.5, "delta": delta}
    assert (told["limits"], told["restored"]) == ({"epsilon": 4.0, "delta": 1e-5}, False)


def test_a_restored_site_says_so_until_its_jobs_are_closed(tmp_path, state, says):
    shutil.copytree(state, tmp_path / "backup")
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    assert "restored from a backup" in says("site", "ledger", "--state", state)[1]
    code, out, err = says("site", "restored", "--state", state)  # nobody types here
    assert (code, out) == (2, "")
    assert "--spent EPSILON,DELTA,UNIT" in err
    assert "or --spent nothing" in err
    assert "restored from a backup" in says("site", "ledger", "--state", state)[1]
    code, out, _ = says("site", "restored", "--state", state, "--spent", "nothing")
    assert code == 0
    assert out.startswith("Open jobs that were closed: 2. New jobs are answered again.")
    out = says("site", "ledger", "--state", state)[1]
    assert "put back" not in out
    assert out.count("closed by the operator") == 2


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
def test_no_less_is_booked_than_receipts_show(tmp_path, state, says, put_back, shown, monkeypatch):
    """Ledger 2.5; then .5 in a run without a result, and .25 in one whose result is there."""
    shutil.copytree(state, tmp_path / "backup")
    spend(state, 0.5, "a")
    spend(state, 0.25, "b")
    result = state / "results" / "last"
    result.mkdir(parents=True)
    (result / "receipt").write_text(f"{'b' * 64} 0.25,1e-06,user")
    put_back(state, tmp_path / "backup")

    def epsilon():
        told = json.loads(says("site", "ledger", "--state", state, "--json")[1])
        return told["restored"], told["account"]["epsilon"]

    least = f"{2 * shown:g},"  # a user's charge counts twice for the examples of this ledger
    for words in ((), ("--spent", "nothing"), ("--spent", f"{2 * shown - 0.1},1e-5,example")):
        code, out, err = says("site", "restored", "--state", state, *words)
        assert (code, out) == (2, "")
        assert re.search(f"at least {re.escape(least)}[0-9.e-]+,example", " ".join(err.split()))
        assert epsilon() == (True, 2.5)
    typed = iter(["nothing", "", f"{shown},1,user", f"{shown},2e-06,user"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    for code in (2, 2, 2, 0):
        monkeypatch.setattr("builtins.input", lambda _: next(typed))
        assert says("site", "restored", "--state", state)[0] == code
    assert epsilon() == (False, 2.5 + 2 * shown)


def test_what_was_spent_elsewhere_is_said_and_booked(state, says, tmp_path):
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


def test_a_federation_is_shown_and_signed(tmp_path, says):
    file, key = tmp_path / "federation.toml", tmp_path / "0.pem"
    for sites, threshold, absent, colluding in ((3, 2, 1, 0), (3, 3, 0, 2), (7, 5, 2, 2)):
        text = f'# our hospitals\nthreshold = {threshold}\nname = "hearts"\nclasses = ["a", "b"]\n'
        for n in range(sites):
            public = says("site", "key", tmp_path / f"{n}.pem")[1].split()[-1]
            text += f'[[site]]\nname = "hospital {n}"\nkey = "{public}"\n'
        file.write_text(text)
        code, out, err = says("site", "federation", file)
        assert (code, err) == (0, "")
        digest = Roster.read(file).digest
        groups = re.search(r"^(?:[0-9a-f]{4} ){15}[0-9a-f]{4}$", out, re.MULTILINE)
        assert groups[0].replace(" ", "") == digest
        assert f"may be absent: {absent}\n" in out
        assert f"work with the server: {colluding}\n" in out
        assert "signed by: nobody" in out
        assert out.count("hospital ") == sites

    code, out, err = says("site", "federation", file, "--sign", key)
    assert (code, err) == (0, "")
    assert file.read_text().startswith(text)  # comments stay
    assert Roster.read(file).digest == digest
    assert Roster.read(file).coordinator == read_key(key).public
    assert "signed by: " + read_key(key).public.hex() in out
    code, _, err = says("site", "federation", file, "--sign", key)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "take its [signature] out first" in err
    file.write_text(file.read_text().replace("hospital 1", "hospital one"))
    code, out, err = says("site", "federation", file)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "signature is not one of this roster" in err


def test_a_key_is_made_once_and_for_this_user_alone(tmp_path, says):
    file = tmp_path / "signing.pem"
    code, out, err = says("site", "key", file)
    assert (code, err) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert out.splitlines()[-1] == read_key(file).public.hex()
    assert says("site", "key", file) == (0, out, "")
    assert file.read_bytes() == before
    file.chmod(0o640)
    code, out, err = says("site", "key", file)
    assert (code, out) == (2, "")
    assert "can be read by other users" in err
    code, _, err = says("site", "key", tmp_path / "none" / "signing.pem")
    assert (code, len(err.splitlines())) == (2, 1)
