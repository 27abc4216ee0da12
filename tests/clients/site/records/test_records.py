"""What a site has sent is kept before it is sent, once, with its charge; old copies are noticed."""

import math
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

import fedcal
from fedcal.clients.site.records.job_facts import CLAIMED, OWN_NOISE, BudgetCaps, JobFacts
from fedcal.clients.site.records.records import KEPT_JOBS, KEPT_ROUNDS, SiteRecords
from fedcal.clients.site.records.records_file import CountFile
from fedcal.core.errors import BudgetExceeded, FedcalError, InputError

FACTS = JobFacts(
    method="fedtemp",
    unit="user",
    trust="distributed",
    adjacency="zero-out",
    mechanism="gaussian",
    epsilon=1.0,
    delta=1e-6,
    rounds=9,
    verified=OWN_NOISE,
    server="hub.example:9092",
    expires=math.inf,
)
LIMITS = BudgetCaps(2.0, 1e-5)


def job(name: object) -> str:
    return sha256(repr(name).encode()).hexdigest()


JOB = job("a job")


def never() -> bytes:
    raise AssertionError("drawn again")


def nothing() -> tuple[bytes, bytes]:
    raise AssertionError("made again")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "records.sqlite"


@pytest.fixture(params=["memory", "file"])
def records(request, file):
    return SiteRecords(None if request.param == "memory" else file, limits=LIMITS)


def enrol(records: SiteRecords, name: str = JOB) -> None:
    records.enrol(name, FACTS, lambda: (b"key", b"enrolment"))


def give(records: SiteRecords, name: str = JOB, round: int = 1, about: JobFacts = FACTS) -> bytes:
    return records.answer(name, about, round, "q", lambda: os.urandom(8))[0]


# --- once ---------------------------------------------------------------------------------------


def test_the_same_question_gets_the_same_bytes(records):
    assert records.answer(JOB, FACTS, 1, "q", lambda: b"sealed") == (b"sealed", False)
    for _ in range(2):
        assert records.answer(JOB, FACTS, 1, "q", never) == (b"sealed", True)
    refused("a round that was asked before must be", records.answer, JOB, FACTS, 1, "p", never)
    assert records.answer(JOB, FACTS, 2, "p", lambda: b"other") == (b"other", False)
    (booked,) = records.booked()
    assert (booked.job, booked.about, booked.answered) == (JOB, FACTS, (1, 2))
    assert abs(booked.when - time.time()) < 60


def test_one_set_of_contributors_is_signed(records):
    refused("not enrolled", records.confirm, JOB, 1, "u", nothing)
    enrol(records, JOB)
    drawn = records.answer(JOB, FACTS, 1, "q", lambda: records.private_key(JOB) + b"!")
    assert drawn == (b"key!", False)
    records.confirm(JOB, 1, "u", lambda: (b"signature", b"sums"))
    refused("signed before must be", records.confirm, JOB, 1, "v", nothing)
    for round, digest in ((1, "v"), (2, "u")):
        refused("none are saved", records.sums, JOB, round, digest)
    assert records.confirm(JOB, 2, "v", lambda: (b"2", b"3")) == b"2"


def test_who_is_asked_once_in_a_job_answers_in_one_round(records):
    give(records)
    refused("answers once", records.answer, JOB, FACTS, 2, "q", never, asked_once=True)
    assert records.answer(JOB, FACTS, 1, "q", never, asked_once=True)[1]


def test_neither_a_job_nor_its_rounds_can_change(records):
    give(records)
    for round in (0, FACTS.rounds + 1):
        with pytest.raises(InputError, match=r"must be a whole number in \[1, 9\]"):
            records.answer(JOB, FACTS, round, "q", never)
    for change in ({"epsilon": 0.5}, {"rounds": 10}, {"unit": "example"}, {"verified": CLAIMED}):
        with pytest.raises(InputError, match="of job 3f0822e4aa9b must be"):
            records.answer(JOB, replace(FACTS, **change), 2, "q", never)
    give(records, round=2, about=replace(FACTS, server="another address"))


def test_old_answers_are_not_kept_and_not_drawn_again(records):
    records.enrol(JOB, FACTS, lambda: (b"key", b"enrolment"))
    for round in range(1, KEPT_ROUNDS + 2):
        give(records, round=round)
        records.confirm(JOB, round, "u", lambda: (b"signature", b"sums"))
    give(records, round=KEPT_ROUNDS + 2)
    refused("an old one", records.answer, JOB, FACTS, 2, "q", never)
    refused("none are saved", records.sums, JOB, 2, "u")
    assert records.sums(JOB, 3, "u") == b"sums"
    assert records.answer(JOB, FACTS, 3, "q", never)[1]


def test_the_job_that_rested_longest_is_closed_for_ever(file):
    with SiteRecords(file) as records:
        for i in range(KEPT_JOBS):
            give(records, job(i))
        give(records, job(0), round=2)
        give(records, job("one more"))
        assert give(records, job(0), round=3)
        refused("20 later jobs", records.answer, job(1), FACTS, 1, "q", never)
        assert [b.job for b in records.booked() if b.closed] == [job(1)]


def test_enrolments_close_no_job_that_was_booked(file):
    with SiteRecords(file) as records:
        enrol(records, JOB)
        sent = give(records)
        for i in range(2 * KEPT_JOBS):
            enrol(records, job(i))
        assert records.answer(JOB, FACTS, 1, "q", never) == (sent, True)
        assert give(records, round=2)
        assert records.private_key(JOB) == b"key"
        refused("20 later jobs", enrol, records, job(KEPT_JOBS - 1))
        assert records.unfinished == KEPT_JOBS + 1


def test_enrolments_do_not_fill_the_disk(records, monkeypatch):
    monkeypatch.setattr("fedcal.clients.site.records.records.KEPT_ENROLMENTS", 3)
    signed, answered = job("signed"), job("answered")
    enrol(records, signed)
    records.confirm(signed, 1, "u", lambda: (b"signature", b"sums"))
    give(records, answered)
    for i in range(2 * KEPT_JOBS):
        enrol(records, job(i))
    ((kept,),) = records._db.rows("SELECT COUNT(*) FROM jobs WHERE booked IS NULL")
    assert kept == KEPT_JOBS + 3 + 1
    with pytest.raises(InputError, match="20 later jobs"):
        enrol(records, signed)  # its one signature is remembered for ever
    assert [booked.job for booked in records.booked()] == [answered]


# --- the budget ---------------------------------------------------------------------------------


def test_a_job_is_charged_once_and_whole(records):
    """And an enrolment alone costs nothing."""
    for i in range(5):
        enrol(records, job(f"enrolled {i}"))
    assert records.booked() == ()
    for round in (1, 2, 3):
        give(records, round=round)
    give(records, job(2))
    with pytest.raises(BudgetExceeded, match=r"user: epsilon 2 of 2 is spent.* 1 more") as e:
        records.answer(job(3), FACTS, 1, "q", never)
    assert "\n" not in str(e.value)
    with pytest.raises(BudgetExceeded):
        records.enrol(job(3), FACTS, nothing)
    give(records, round=4)  # what was charged may go on
    assert [booked.job for booked in records.booked()] == [JOB, job(2)]


def test_deltas_have_a_sum_of_their_own(records):
    give(records, about=replace(FACTS, delta=9e-6))
    with pytest.raises(BudgetExceeded, match="delta 9e-06 of 1e-05"):
        records.answer(job(2), replace(FACTS, epsilon=0.1, delta=2e-6), 1, "q", never)
    exact = replace(FACTS, epsilon=math.inf, delta=0.0, verified=CLAIMED)
    give(records, job(4), about=exact)
    give(records, job(5), about=replace(FACTS, delta=1e-6))
    assert [booked.about.exact for booked in records.booked()] == [False, True, False]


ROW = {"unit": "example", "adjacency": "add-remove"}
SUBJECT = {"unit": "subject", "adjacency": "add-remove"}
OTHERS = {"adjacency": "replace"}


@pytest.mark.parametrize(
    ("first", "second", "epsilon"),
    [({}, ROW, 3.0), (ROW, {}, 3.0), ({}, SUBJECT, 3.0), (SUBJECT, ROW, 3.0), (OTHERS, ROW, 2.0)],
)
def test_a_row_pays_for_its_subject_and_its_client(first, second, epsilon):
    """Of a larger unit twice, all rows away and back with one changed, or once, by any others."""
    one, other = (replace(FACTS, **unit) for unit in (first, second))
    delta = 2e-6 if epsilon == 2 else (1 + math.e) * 1e-6 + 1e-6
    for caps in ((epsilon, delta), (0.99 * epsilon, delta), (epsilon, 0.99 * delta)):
        with SiteRecords(None, limits=BudgetCaps(*caps)) as records:
            give(records, job(1), about=one)
            if caps == (epsilon, delta):
                give(records, job(2), about=other)
                continue
            with pytest.raises(BudgetExceeded, match=r"unit (example|subject): "):
                records.answer(job(2), other, 1, "q", never)


def test_three_units_share_one_total():
    with SiteRecords(None, limits=BudgetCaps(1.0, 1e-5)) as records:
        give(records, job(1))
        for unit in (SUBJECT, ROW):
            about = replace(FACTS, **unit)
            with pytest.raises(BudgetExceeded, match="epsilon 2 of 1 is spent"):
                records.answer(job(unit), about, 1, "q", never)


def test_what_fails_leaves_nothing(records):
    def fails() -> bytes:
        raise OverflowError("row 7")

    with pytest.raises(OverflowError):  # no error of the file's: its text may tell of rows
        records.answer(JOB, FACTS, 1, "q", fails)
    assert records.booked() == ()
    assert records.answer(JOB, FACTS, 1, "p", lambda: b"drawn")[0] == b"drawn"


def test_what_cannot_be_written_is_not_answered(file, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with SiteRecords(file) as records:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            refused("No space left on device", give, records, error=FedcalError)
        assert records.booked() == ()
        ((pages,),) = records._db.rows("PRAGMA page_count")
        records._db.rows(f"PRAGMA max_page_count = {pages}")
        refused("disk is full", records.answer, JOB, FACTS, 1, "q", lambda: bytes(20_000))
        records._db.rows("PRAGMA max_page_count = 99999")
        assert records.booked() == ()
        assert not records.answer(JOB, FACTS, 1, "q", lambda: b"")[1]


# --- ends of jobs -------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["finish", "expire", "close all"])
def test_of_a_job_that_has_ended_no_secret_is_left(file, end):
    """With other jobs around it, whose pages SQLite moves and splits."""
    secrets = [os.urandom(32) for _ in range(3)] + [os.urandom(20_000)]
    about = replace(FACTS, expires=time.time() + 600)
    with SiteRecords(file) as records:
        for i in range(8):
            records.enrol(job(i), about, lambda: (os.urandom(32), os.urandom(300)))
            give(records, job(i), about=about)
        records.enrol(JOB, about, lambda: (secrets[0], secrets[1]))
        records.answer(JOB, about, 1, "q", lambda: secrets[2])
        records.answer(JOB, about, 2, "q", lambda: secrets[3])
        records.confirm(JOB, 1, "u", lambda: (b"signature", secrets[1]))
        for i in range(8, 16):
            records.enrol(job(i), about, lambda: (os.urandom(32), os.urandom(300)))
            records.finish(job(i - 8))
        assert all(secret[:32] in file.read_bytes() for secret in secrets)
        for i in range(8, 16):
            records.finish(job(i))
        if end == "expire":
            records.expire(about.expires)
        elif end == "finish":
            records.finish(JOB)
        else:
            assert records.close_all("nothing") == 1
        left = file.read_bytes()
        assert not [secret for secret in secrets if secret[-16:] in left or secret[:16] in left]
        for call in (
            lambda: records.answer(JOB, about, 1, "q", never),
            lambda: records.answer(JOB, about, 3, "q", never),
            lambda: records.enrol(JOB, about, nothing),
            lambda: records.confirm(JOB, 1, "u", nothing),
            lambda: records.sums(JOB, 1, "u"),
        ):
            refused("is no longer answered: ", call)
        refused("the private key of job .* is absent", records.private_key, JOB)
        assert records.booked()[-1].answered == (1, 2)
        assert records.booked()[-1].closed
        late = replace(FACTS, expires=time.time() - 1)
        refused("has expired", records.enrol, job("late"), late, nothing)
        refused("has expired", records.answer, job("late"), late, 1, "q", never)


# --- crashes and races --------------------------------------------------------------------------


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def answer(records: SiteRecords, round: int = 1, about: JobFacts = FACTS) -> None:
    records.answer(JOB, about, round, "q", lambda: b"answer")


def dies_in(step: str, *given: Any, first: Any = lambda *_: None) -> Any:
    """Answer, and die in this step of the count, or after what is done `first`."""

    def run(records: SiteRecords) -> None:
        setattr(CountFile, step, lambda *now: die(first(*now)))
        answer(records, *given)

    return run


def amid_the_commit(records: SiteRecords) -> None:
    def half(*given: Any, before: Any = CountFile.next) -> None:
        before(*given)
        for pragma in ("cache_size = 1", "cache_spill = 1"):
            records._db.rows(f"PRAGMA {pragma}")
        for i in range(99):
            records._db.execute("UPDATE jobs SET closed = ?", (str(i) * 9999,))
            values = (JOB, -i, bytes(9999))
            records._db.execute("INSERT INTO answers VALUES (?, ?, 'q', ?)", values)

    dies_in("next", first=half)(records)


def race(records: SiteRecords) -> None:
    os.write(1, b"open\n")
    os.read(0, 1)
    os.write(1, give(records).hex().encode() + b"\n")


DEATHS = {
    "drawing": (lambda records: records.answer(JOB, FACTS, 1, "q", die), 0),
    "before the count": (dies_in("next"), 0),
    "before the commit": (dies_in("next", first=CountFile.next), 0),
    "amid the commit": (amid_the_commit, 0),
    "after the commit": (dies_in("committed"), 1),
    "at the end": (lambda records: die(answer(records)), 1),
    "enrolling": (lambda records: records.enrol(JOB, FACTS, die), 0),
    "signing": (lambda records: (answer(records), records.confirm(JOB, 1, "u", die)), 1),
}
"""And how many answers are kept."""
STEPS: dict[str, Callable[[SiteRecords], object]] = {
    **{name: step for name, (step, _) in DEATHS.items()},
    "after round 4": dies_in("committed", 4),
    "after the key's last": dies_in("committed", 2, replace(FACTS, epsilon=2.0)),
    "race": race,
}


def children() -> None:
    """All of a process of its own: each step with its file in a fork, and how that ended."""
    forks = []
    for name, path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        if fork := os.fork():
            forks.append(fork)
            continue
        key = Path(path).parents[1] / "signing.pem.records"
        STEPS[name](SiteRecords(Path(path), count=key if key.exists() else None))
        os._exit(0)
    for fork in forks:
        print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))


def start(*steps: tuple[str, Path]) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    folders = (Path(fedcal.__file__).parents[1], here, here.parents[2] / "support")
    words = [word for step, file in steps for word in (step, str(file))]
    return subprocess.Popen(
        [sys.executable, "-c", "import test_records; test_records.children()", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
    )


def died(*steps: tuple[str, Path]) -> None:
    said, _ = start(*steps).communicate()
    assert said.split() == [str(-signal.SIGKILL)] * len(steps)


def kept(file: Path) -> int:
    """Number of answers; none is without a charge, and no charge without an answer."""
    with SiteRecords(file) as records:
        assert not records.restored
    with closing(sqlite3.connect(file)) as db:
        charged = {row[0] for row in db.execute("SELECT job FROM jobs WHERE booked IS NOT NULL")}
        answered = [row[0] for row in db.execute("SELECT job FROM answers")]
        assert charged == set(answered)
        assert not db.execute("SELECT 1 FROM signatures WHERE sums IS NULL").fetchall()
        assert not db.execute(
            "SELECT 1 FROM jobs WHERE (private_key IS NULL) != (enrolment IS NULL)"
        ).fetchall()
    return len(answered)


def test_a_death_at_any_step_leaves_both_or_neither(tmp_path):
    files = {step: tmp_path / step / "records.sqlite" for step in DEATHS}
    for file in files.values():
        file.parent.mkdir()
    died(*files.items())
    for step, (_, answers) in DEATHS.items():
        assert kept(files[step]) == answers, step
        with SiteRecords(files[step]) as records:
            again = records.answer(JOB, FACTS, 1, "q", lambda: b"answer")
            assert again == (b"answer", answers == 1), step
            records.confirm(JOB, 1, "v", lambda: (b"", b""))
            records.enrol(job(2), FACTS, lambda: (b"key", b"enrolment"))


def test_two_processes_that_race_for_a_round_send_the_same_bytes(file):
    racers = start(("race", file), ("race", file))  # they race to make the file, too
    assert [racers.stdout.readline() for _ in range(2)] == ["open\n"] * 2
    with SiteRecords(file) as gate, gate._transaction():
        racers.stdin.write("go")
        racers.stdin.flush()
        time.sleep(0.2)
    *ends, one, other = sorted(racers.communicate()[0].split(), key=len)
    assert one == other
    assert len(one) == 16
    assert ends == ["0", "0"]
    assert kept(file) == 1


# --- restored from a backup ---------------------------------------------------------------------


RESTORED = {
    "the file": lambda backup, folder: shutil.copy2(backup / "records.sqlite", folder),
    "the same inode": lambda backup, folder: (folder / "records.sqlite").write_bytes(
        (backup / "records.sqlite").read_bytes()
    ),
    "the folder": lambda backup, folder: (shutil.rmtree(folder), shutil.copytree(backup, folder)),
    "no file": lambda backup, folder: (folder / "records.sqlite").unlink(),
    "no count": lambda backup, folder: (folder / "records.count").unlink(),
}


@pytest.mark.parametrize("restored", RESTORED)
@pytest.mark.parametrize("behind", [0, 2])
def test_a_file_from_a_backup_answers_nothing_before_the_operator_says_so(
    tmp_path, restored, behind
):
    file = tmp_path / "site" / "records.sqlite"
    file.parent.mkdir()
    with SiteRecords(file, limits=LIMITS) as records:
        records.enrol(JOB, FACTS, lambda: (b"key", b"enrolment"))
        give(records)
    shutil.copytree(file.parent, tmp_path / "backup")
    with SiteRecords(file) as records:
        for round in range(2, 2 + behind):
            give(records, round=round)
    RESTORED[restored](tmp_path / "backup", file.parent)
    for _ in range(2):
        with SiteRecords(file, limits=BudgetCaps(9.0, 1e-5)) as records:
            assert records.restored
            for call in (
                lambda: records.answer(JOB, FACTS, 1, "q", never),
                lambda: records.answer(JOB, FACTS, 2, "q", never),
                lambda: records.answer(job("unknown here"), FACTS, 1, "q", never),
                lambda: records.enrol(JOB, FACTS, nothing),
                lambda: records.private_key(JOB),
            ):
                refused("restored from a backup", call)
    with SiteRecords(file) as records:
        spent = records.missing() or "nothing"
        assert spent == ("1,1e-06,user" if restored == "no file" else "nothing")
        assert records.close_all(spent) == (restored != "no file")
        assert not records.restored
        if restored != "no file":
            refused("closed by the operator", give, records)
    with SiteRecords(file) as records:
        give(records, job("new"))
        assert give(records, job("new"), round=2)


def test_a_death_does_not_hide_a_backup(tmp_path):
    """After it nobody knows when the file was last changed; a backup may be one behind alone."""
    backups = {}
    for behind in (1, 2):
        file = tmp_path / str(behind) / "records.sqlite"
        file.parent.mkdir()
        with SiteRecords(file) as records:
            for round in (1, 2, 3):
                give(records, round=round)
                backups[file] = file.read_bytes() if round <= 4 - behind else backups[file]
    died(*(("after round 4", file) for file in backups))
    for file, backup in backups.items():
        file.write_bytes(backup)
        with (
            SiteRecords(file) as records,
            pytest.raises(InputError, match="restored from a backup"),
        ):
            records.answer(JOB, FACTS, 4, "q", never)


# --- the key --------------------------------------------------------------------------------------


@dataclass
class Key:
    """A key, and folders of sites that are started with it."""

    folder: Path

    @property
    def count(self) -> Path:
        return self.folder / "signing.pem.records"

    def records(self, state: str, count: Path | None = None, **more: Any) -> SiteRecords:
        (self.folder / state).mkdir(exist_ok=True)
        path = self.folder / state / "records.sqlite"
        return SiteRecords(path, limits=LIMITS, count=count or self.count, **more)

    def refused(self, state: str) -> str:
        """Why nothing is answered there."""
        with self.records(state) as records:
            with pytest.raises(InputError) as refusal:
                records.answer(job("new"), FACTS, 1, "q", never)
            with pytest.raises(InputError):
                records.enrol(job("new"), FACTS, nothing)
            return str(refusal.value)


@pytest.fixture
def key(tmp_path):
    """It has spent all of its budget in folder "a"."""
    key = Key(tmp_path)
    with key.records("a") as records:
        give(records, about=replace(FACTS, epsilon=2.0))
    assert stat.S_IMODE(key.count.stat().st_mode) == 0o600
    return key


def test_a_second_or_a_new_folder_is_not_the_key_s(key):
    for state in ("b", "a"):
        if state == "a":
            shutil.rmtree(key.folder / "a")
        said = key.refused(state)
        assert re.search(
            r"have the id [0-9a-f]{12}, and .*signing\.pem\.records, .*of records", said
        )
        assert "fedcal site restored --spent" in said
        assert "\n" not in said
        with (
            key.records(state) as records,
            pytest.raises(InputError, match="at least 2,1e-06,user"),
        ):
            records.close_all("nothing")


def test_what_the_operator_says_was_spent_is_booked(key):
    with key.records("b") as records:
        refused("at least 2,1e-06,user", records.close_all, "1.5,1e-6,user")
        assert records.restored
        assert records.close_all("2,1e-6,user") == 0
        assert not records.restored
    with key.records("b") as records:
        (booked,) = records.booked()
        assert (booked.about.method, booked.about.epsilon) == ("carried over", 2.0)
        assert (booked.answered, booked.closed) == ((), "carried over")
        with pytest.raises(BudgetExceeded, match="epsilon 2 of 2 is spent"):
            records.answer(job("new"), FACTS, 1, "q", never)
    assert "have the id" in key.refused("a")  # it is not the key's any more
    with key.records("a") as records:
        records.close_all("nothing")
        assert len(records.booked()) == 1


def test_a_copied_folder_is_not_the_key_s(key):
    subprocess.run(["cp", "-a", key.folder / "a", key.folder / "copy"], check=True)
    assert "restored from a backup" in key.refused("copy")
    with key.records("a") as records:
        assert not records.restored
        records.answer(JOB, replace(FACTS, epsilon=2.0), 1, "q", never)
    with key.records("copy") as records:
        records.close_all("nothing")
    assert "have the id" in key.refused("a")


def test_a_folder_put_back_by_itself_in_mid_transaction_is_noticed(key):
    """Its count file says that a transaction was under way; the key's says which came after it."""
    state = key.folder / "a"
    died(("after the key's last", state / "records.sqlite"))
    shutil.copytree(state, key.folder / "backup")
    with key.records("a") as records:
        give(records, round=3, about=replace(FACTS, epsilon=2.0))
    shutil.rmtree(state)
    shutil.copytree(key.folder / "backup", state)
    assert "restored from a backup" in key.refused("a")


def test_a_death_lets_no_other_folder_pass(key):
    """Not even one with as many transactions, by its own count."""
    file = key.folder / "a" / "records.sqlite"
    died(("after the key's last", file))
    left = int(key.count.read_text().split()[0])
    (key.folder / "b").mkdir()
    with SiteRecords(key.folder / "b" / "records.sqlite") as records:
        for round in range(1, left + 1):
            give(records, round=round)
        assert records._transactions == left
    assert "have the id" in key.refused("b")


def test_another_key_takes_over_the_records_that_were_left(key, tmp_path):
    other = tmp_path / "new.pem.records"
    with key.records("a", other) as records:
        assert records.restored  # nobody says which key was before
    other.unlink()
    with key.records("a", other, count_before=key.count) as records:
        assert records.booked()
        with pytest.raises(BudgetExceeded):
            give(records, job("new"))
        records.finish(JOB)
    assert "restored from" in key.refused("a")
    with key.records("a", count_before=other) as records:  # and the first one again
        assert not records.restored
    with key.records("b", other, count_before=key.count) as records:
        assert records.foreign


# --- the file -----------------------------------------------------------------------------------


def test_another_file_is_refused(tmp_path):
    (tmp_path / "a.sqlite").write_text("no database, but long enough to be one" * 99)
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as other, other:
        other.execute("CREATE TABLE jobs (job TEXT)")
    for name, said in (
        ("a", "not a database"),
        ("b", "of another application"),
        ("c/d", "cannot wri"),
    ):
        refused(said, SiteRecords, tmp_path / f"{name}.sqlite")


OLD = """
CREATE TABLE state (transactions INTEGER NOT NULL, epsilon REAL, delta REAL);
CREATE TABLE jobs (job TEXT PRIMARY KEY, method TEXT NOT NULL, unit TEXT NOT NULL,
 trust TEXT NOT NULL, adjacency TEXT NOT NULL, mechanism TEXT NOT NULL,
 epsilon REAL NOT NULL, delta REAL NOT NULL, rounds INTEGER NOT NULL,
 verified TEXT NOT NULL, server TEXT NOT NULL, expires REAL NOT NULL,
 used INTEGER NOT NULL, booked REAL, closed TEXT, private_key BLOB, enrolment BLOB);
CREATE TABLE answers (job TEXT NOT NULL REFERENCES jobs, round INTEGER NOT NULL,
 question TEXT NOT NULL, answer BLOB, PRIMARY KEY (job, round));
CREATE TABLE signatures (job TEXT NOT NULL REFERENCES jobs, round INTEGER NOT NULL,
 digest TEXT NOT NULL, signature BLOB, sums BLOB, PRIMARY KEY (job, round));
PRAGMA application_id = 0x66637372;
PRAGMA user_version = 1;
"""


def old_file(file: Path) -> None:
    """Records of version 1 with two charges, and their count file."""
    with closing(sqlite3.connect(file)) as db, db:
        db.executescript(OLD)
        db.execute("INSERT INTO state VALUES (7, 2.0, 1e-5)")
        for name, unit in ((JOB, "user"), (job("row"), "example")):
            facts = [*vars(replace(FACTS, unit=unit)).values()]
            values = (name, *facts, 7, 1.8e9, None, None, None)
            db.execute(f"INSERT INTO jobs VALUES ({', '.join('?' * 17)})", values)
            db.execute("INSERT INTO answers VALUES (?, 1, 'q', ?)", (name, b"kept"))
    file.with_suffix(".count").write_text(f"7 {file.stat().st_ctime_ns}".ljust(48))


@pytest.mark.parametrize("keyed", [False, True])
def test_records_of_the_first_version_lose_nothing(file, keyed):
    old_file(file)
    count = file.with_name("signing.pem.records") if keyed else None
    for _ in range(2):
        with SiteRecords(file, count=count) as records:
            assert not records.restored
            assert [booked.about.unit for booked in records.booked()] == ["user", "example"]
            assert records.answer(JOB, FACTS, 1, "q", never) == (b"kept", True)
            with pytest.raises(BudgetExceeded, match="unit example: epsilon 3 of 2 is spent"):
                give(records, job("new"))
