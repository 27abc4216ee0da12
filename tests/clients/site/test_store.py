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
from datetime import UTC, date, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import policies
import pytest
from refusals import refused

import fedcal
from fedcal.clients.site.policy import CLAIMED, Policy
from fedcal.clients.site.restored import RestoredRecords
from fedcal.clients.site.store import KEPT_JOBS, KEPT_ROUNDS, RECORDS
from fedcal.core.checks import BudgetExceeded


def job(name: object) -> str:
    return sha256(repr(name).encode()).hexdigest()


JOB = job("a job")
FACTS = replace(policies.FACTS, job=JOB)


def caps(epsilon: float, delta: float, *a_year: float, **more: Any) -> Policy:
    own = dict(zip(("epsilon_a_year", "delta_a_year"), a_year, strict=False))
    return policies.policy(**own | {"epsilon_total": epsilon, "delta_total": delta} | more)


LIMITS = caps(2.0, 1e-5)
SECRETS = (b"key", b"enrolment")


def never(*_: object) -> Any:
    raise AssertionError("drawn, or made, again")


@pytest.fixture
def file(tmp_path):
    return tmp_path / RECORDS


@pytest.fixture
def records(file):
    return RestoredRecords(file, limits=LIMITS)


def ask(records: RestoredRecords, round: int = 1, draw: Any = never, **change: Any) -> Any:
    """The question of this round, in a job with these facts."""
    return records.answer(replace(FACTS, **change), round, "q", draw)


def give(records: RestoredRecords, round: int = 1, **change: Any) -> bytes:
    return ask(records, round, lambda: os.urandom(8), **change)[0]


def enrol(records: RestoredRecords, make: Any = lambda: SECRETS, **change: Any) -> bytes:
    return records.enrol(replace(FACTS, **change), make)


def sign(records: RestoredRecords, round: int = 1, digest: str = "u", **kept: Any) -> bytes:
    make = kept.get("make", lambda: (b"signature", b"sums"))
    return records.confirm(kept.get("job", JOB), round, digest, make)


def booked(records: RestoredRecords) -> list[str]:
    return [one.job for one in records.booked()]


# --- once ---------------------------------------------------------------------------------------


def test_the_same_question_gets_the_same_bytes(records):
    assert ask(records, draw=lambda: b"sealed") == (b"sealed", False)
    for _ in range(2):
        assert ask(records) == (b"sealed", True)
    refused("a round that was asked before must be", records.answer, FACTS, 1, "p", never)
    assert records.answer(FACTS, 2, "p", lambda: b"other") == (b"other", False)
    (known,) = records.booked()
    assert known == replace(FACTS, booked=known.booked)
    assert abs(known.booked - time.time()) < 60


def test_one_set_of_contributors_is_signed(records):
    refused("not enrolled", sign, records, make=never)
    assert enrol(records) == enrol(records, never) == b"enrolment"
    assert records.private_key(JOB) == b"key"
    assert sign(records) == sign(records, make=never) == b"signature"
    refused("signed before must be", sign, records, 1, "v", make=never)
    for round, digest in ((1, "v"), (2, "u")):
        refused("none are saved", records.sums, JOB, round, digest)
    assert sign(records, 2, "v", make=lambda: (b"2", b"3")) == b"2"


def test_a_site_asked_once_in_a_job_answers_in_one_round(records):
    give(records)
    refused("answers once", records.answer, FACTS, 2, "q", never, asked_once=True)
    assert records.answer(FACTS, 1, "q", never, asked_once=True)[1]


def test_old_answers_are_not_kept_and_not_drawn_again(records):
    enrol(records)
    for round in (0, FACTS.rounds + 1):
        refused(r"must be a whole number in \[1, 9\]", ask, records, round)
    for round in range(1, KEPT_ROUNDS + 3):
        give(records, round)
        if round <= KEPT_ROUNDS + 1:
            sign(records, round)
    refused("an old one", ask, records, 2)
    refused("none are saved", records.sums, JOB, 2, "u")
    assert records.sums(JOB, 3, "u") == b"sums"
    assert ask(records, 3)[1]


def test_the_job_that_rested_longest_is_closed_for_ever(file):
    with RestoredRecords(file) as records:
        for i in range(KEPT_JOBS):
            give(records, job=job(i))
        give(records, 2, job=job(0))
        give(records, job=job("one more"))
        assert give(records, 3, job=job(0))
        refused("20 later jobs", ask, records, job=job(1))
        assert [one.job for one in records.booked() if one.closed] == [job(1)]


def test_enrolments_close_no_job_that_binds_the_site_and_do_not_fill_the_disk(file):
    with RestoredRecords(file) as records:
        enrol(records)
        sent = give(records)
        enrol(records, job=job("signed"))
        sign(records, job=job("signed"))
        enrol(records, job=job("closed"))
        records.finish(job("closed"))
        for i in range(2 * KEPT_JOBS):
            enrol(records, job=job(i))
        assert ask(records) == (sent, True)
        assert give(records, 2)
        assert records.private_key(JOB) == b"key"
        refused("signed before must be", sign, records, 1, "v", job=job("signed"))
        refused("finished", enrol, records, job=job("closed"))
        assert records.unfinished == KEPT_JOBS + 2


def test_signatures_close_no_job_that_was_booked_and_do_not_fill_the_disk(file):
    with RestoredRecords(file) as records:
        sent = give(records)
        for i in range(3 * KEPT_JOBS):
            enrol(records, job=job(i))
            sign(records, job=job(i))
        assert records.unfinished == KEPT_JOBS + 1
        refused("20 later jobs", sign, records, job=job(0))
        assert give(records, job=job(3 * KEPT_JOBS - 1))
        assert ask(records) == (sent, True)


# --- the budget ---------------------------------------------------------------------------------


def test_a_job_is_charged_once_and_in_full(records):
    """And an enrolment alone costs nothing."""
    for i in range(5):
        enrol(records, job=job(f"enrolled {i}"))
    assert records.booked() == ()
    for round in (1, 2, 3):
        give(records, round)
    give(records, job=job(2))
    for call in (ask, enrol, lambda records, **new: records.afford(replace(FACTS, **new))):
        why = r"user: epsilon 2 of 2 is spent.* 1 more"
        refused(why, call, records, job=job(3), error=BudgetExceeded)
    give(records, 4)  # what was charged may go on
    assert booked(records) == [JOB, job(2)]


def test_deltas_have_a_sum_of_their_own(records):
    give(records, delta=9e-6)
    less = {"job": job(2), "epsilon": 0.1, "delta": 2e-6}
    refused("delta 9e-06 of 1e-05", ask, records, **less, error=BudgetExceeded)
    give(records, job=job(4), epsilon=math.inf, delta=0.0, verified=CLAIMED)
    give(records, job=job(5))
    assert [one.exact for one in records.booked()] == [False, True, False]


ROW = {"unit": "example", "adjacency": "add-remove"}
SUBJECT = {"unit": "subject", "adjacency": "add-remove"}
OTHERS = {"adjacency": "replace"}


@pytest.mark.parametrize(
    ("first", "second", "epsilon"),
    [({}, ROW, 3.0), (ROW, {}, 3.0), ({}, SUBJECT, 3.0), (SUBJECT, ROW, 3.0), (OTHERS, ROW, 2.0)],
)
@pytest.mark.parametrize("in_a_year", [False, True])
def test_a_row_pays_for_its_subject_and_its_client(first, second, epsilon, in_a_year):
    """Of a larger unit twice, all rows away and back with one changed, or once, by any others."""
    delta = 2e-6 if epsilon == 2 else (1 + math.e) * 1e-6 + 1e-6
    for own in ((epsilon, delta), (0.99 * epsilon, delta), (epsilon, 0.99 * delta)):
        limits = caps(9.0, 0.1, *own, begins=BEGINS) if in_a_year else caps(*own)
        with RestoredRecords(None, limits=limits) as records:
            give(records, **first)
            call, error = partial(ask, records, job=job(2), **second), BudgetExceeded
            if own == (epsilon, delta):
                call(draw=lambda: b"")
            else:
                refused(r"unit (example|subject)[:,]", call, error=error)


def test_three_units_share_one_total():
    with RestoredRecords(None, limits=caps(1.0, 1e-5)) as records:
        give(records)
        for new in (SUBJECT, ROW):
            why = "epsilon 2 of 1 is spent"
            refused(why, ask, records, job=job(new), **new, error=BudgetExceeded)


BEGINS = date(2027, 3, 1)
YEARS = caps(5.0, 0.9, 2.0, 1e-3, begins=BEGINS, expires=BEGINS + timedelta(round(4 * 365.25)))


@pytest.fixture
def on(monkeypatch):
    """Sets the clock to so many days after the first one."""

    def set_to(days: float) -> None:
        noon = datetime(2027, 3, 1, tzinfo=UTC) + timedelta(days)
        monkeypatch.setattr(time, "time", noon.timestamp)

    return set_to


def test_a_job_is_charged_to_the_year_of_its_first_answer(file, on):
    spent = "year 1 (the next begins on 2028-03-01): epsilon 2 of 2 is spent"
    with RestoredRecords(file, limits=YEARS) as records:
        on(0)
        enrol(records, job=job("enrolled on 0"))
        for day in (0, 365.99):
            on(day)
            give(records, job=job(day))
        refused(re.escape(f"unit user, {spent}"), ask, records, job=job(3), error=BudgetExceeded)
        refused(re.escape(spent), enrol, records, job=job(3), error=BudgetExceeded)
    on(366)
    with RestoredRecords(file, limits=YEARS) as records:
        assert [YEARS.year(one.booked) for one in records.booked()] == [1, 1]
        give(records, 2, job=job(0))  # of last year, and paid then
        give(records, job=job("enrolled on 0"))  # of last year, and answered in this one
        give(records, job=job(4))
        refused("year 2 .*epsilon 2 of 2", ask, records, job=job(5), error=BudgetExceeded)
        on(4 * 365.25)  # its last day is in year 4, and no year of its own
        give(records, job=job(6))
        refused("user: epsilon 5 of 5", ask, records, job=job(7), error=BudgetExceeded)
    assert YEARS.in_words(YEARS.year(time.time())) == "year 4 (the last one)"


@pytest.mark.parametrize("years", [1, 3, 11])
def test_years_are_those_of_a_study(years):
    """Each of its days, and those before it and on which it is over already."""
    days = round(365.25 * years)
    of = replace(YEARS, expires=BEGINS + timedelta(days))
    at = datetime(2027, 3, 1, 23, tzinfo=UTC)
    found = [of.year((at + timedelta(day)).timestamp()) for day in range(-1, days + 2)]
    assert found == [0, *(min(int(day / 365.25) + 1, years) for day in range(days + 1)), years]


# --- what fails ---------------------------------------------------------------------------------


def test_what_fails_leaves_nothing(records):
    def fails() -> bytes:
        raise OverflowError("row 7")

    with pytest.raises(OverflowError):  # no error of the file's: its text may tell of rows
        ask(records, draw=fails)
    assert records.booked() == ()
    assert records.answer(FACTS, 1, "p", lambda: b"drawn")[0] == b"drawn"


def test_what_cannot_be_written_is_not_answered(file, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with RestoredRecords(file) as records:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            refused("No space left on device", give, records)
        assert records.booked() == ()
        ((pages,),) = records.rows("PRAGMA page_count")
        records.rows(f"PRAGMA max_page_count = {pages}")
        refused("disk is full", ask, records, draw=lambda: bytes(20_000))
        records.rows("PRAGMA max_page_count = 99999")
        assert records.booked() == ()
        assert not ask(records, draw=lambda: b"")[1]


# --- ends of jobs -------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["finish", "expire", "close all"])
def test_of_a_job_that_has_ended_no_secret_is_left(file, end, monkeypatch):
    """With other jobs around it, whose pages SQLite moves and splits."""
    secrets = [os.urandom(32) for _ in range(3)] + [os.urandom(20_000)]
    until = {"expires": time.time() + 600}
    with RestoredRecords(file) as records:

        def others(*numbers: int) -> None:
            for i in numbers:
                enrol(records, lambda: (os.urandom(32), os.urandom(300)), job=job(i), **until)
                give(records, job=job(i), **until)

        others(*range(8))
        enrol(records, lambda: (secrets[0], secrets[1]), **until)
        ask(records, 1, lambda: secrets[2], **until)
        ask(records, 2, lambda: secrets[3], **until)
        sign(records, make=lambda: (b"signature", secrets[1]))
        for i in range(8, 16):
            enrol(records, lambda: (os.urandom(32), os.urandom(300)), job=job(i), **until)
            records.finish(job(i - 8))
        assert all(secret[:32] in file.read_bytes() for secret in secrets)
        for i in range(8, 16):
            records.finish(job(i))
        if end == "finish":
            records.finish(JOB)
        elif end == "close all":
            assert records.close_all("nothing") == 1
    if end == "expire":
        monkeypatch.setattr(time, "time", lambda: until["expires"])
    with RestoredRecords(file) as records:
        left = file.read_bytes()
        assert not [secret for secret in secrets if secret[-16:] in left or secret[:16] in left]
        for call in (
            lambda: ask(records, **until),
            lambda: ask(records, 3, **until),
            lambda: enrol(records, never, **until),
            lambda: sign(records, make=never),
            lambda: records.sums(JOB, 1, "u"),
        ):
            refused("is no longer answered: ", call)
        refused("the private key of job .* is absent", records.private_key, JOB)
        assert records.booked()[-1].closed
        late = {"job": job("late"), "expires": time.time() - 1}
        refused("has expired", enrol, records, never, **late)
        refused("has expired", ask, records, **late)


# --- crashes and races --------------------------------------------------------------------------


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def answer(records: RestoredRecords, round: int = 1, **change: Any) -> None:
    ask(records, round, lambda: b"answer", **change)


COUNTS = RestoredRecords._number


def dies_in(step: str, round: int = 1, first: Any = lambda *_: None, **change: Any) -> Any:
    """Answer, and die in this step of the count, or after what is done `first`."""

    def run(records: RestoredRecords) -> None:
        if step == "_number":
            RestoredRecords._number = lambda self: die(first(self))
        else:  # the second time that the count file is written
            leave = RestoredRecords._leave
            RestoredRecords._leave = lambda *given: leave(*given) if len(given) > 2 else die()
        answer(records, round, **change)

    return run


def amid_the_commit(records: RestoredRecords) -> None:
    def half(records: RestoredRecords) -> None:
        COUNTS(records)
        for pragma in ("cache_size = 1", "cache_spill = 1"):
            records.rows(f"PRAGMA {pragma}")
        for i in range(99):
            records.execute("UPDATE jobs SET closed = ?", (str(i) * 9999,))
            records.execute("INSERT INTO answers VALUES (?, ?, 'q', ?)", (JOB, -i, bytes(9999)))

    dies_in("_number", first=half)(records)


def race(records: RestoredRecords) -> None:
    os.write(1, b"open\n")
    os.read(0, 1)
    os.write(1, give(records).hex().encode() + b"\n")


DEATHS = {
    "drawing": (partial(ask, draw=die), 0),
    "before the count": (dies_in("_number"), 0),
    "before the commit": (dies_in("_number", first=COUNTS), 0),
    "amid the commit": (amid_the_commit, 0),
    "after the commit": (dies_in("_leave"), 1),
    "at the end": (lambda records: die(answer(records)), 1),
    "enrolling": (partial(enrol, make=die), 0),
    "signing": (lambda records: (enrol(records), answer(records), sign(records, make=die)), 1),
}
"""And how many answers are kept."""
STEPS: dict[str, Callable[[RestoredRecords], object]] = {
    **{name: step for name, (step, _) in DEATHS.items()},
    "after round 4": dies_in("_leave", 4),
    "after the key's last": dies_in("_leave", 2, epsilon=2.0),
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
        STEPS[name](RestoredRecords(Path(path), count=key if key.exists() else None))
        os._exit(0)
    for fork in forks:
        print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))


def start(*steps: tuple[str, Path]) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    folders = (Path(fedcal.__file__).parents[1], here, here.parents[1] / "support")
    words = [word for step, file in steps for word in (step, str(file))]
    return subprocess.Popen(
        [sys.executable, "-c", "import test_store; test_store.children()", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
    )


def died(*steps: tuple[str, Path]) -> None:
    output, _ = start(*steps).communicate()
    assert output.split() == [str(-signal.SIGKILL)] * len(steps)


def kept(file: Path) -> int:
    """Number of answers; none is without a charge, and no charge without an answer."""
    with RestoredRecords(file) as records:
        assert not records.refusal
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
    files = {step: tmp_path / step / RECORDS for step in DEATHS}
    for file in files.values():
        file.parent.mkdir()
    died(*files.items())
    for step, (_, answers) in DEATHS.items():
        assert kept(files[step]) == answers, step
        with RestoredRecords(files[step]) as records:
            assert ask(records, draw=lambda: b"answer") == (b"answer", answers == 1), step
            sign(records, 1, "v")
            enrol(records, job=job(2))


def test_two_processes_that_race_for_a_round_send_the_same_bytes(file):
    racers = start(("race", file), ("race", file))  # they race to make the file, too
    assert [racers.stdout.readline() for _ in range(2)] == ["open\n"] * 2
    with RestoredRecords(file) as gate, gate.transaction():
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
    "the file": lambda backup, folder: shutil.copy2(backup / RECORDS, folder),
    "the same inode": lambda backup, folder: (folder / RECORDS).write_bytes(
        (backup / RECORDS).read_bytes()
    ),
    "the folder": lambda backup, folder: (shutil.rmtree(folder), shutil.copytree(backup, folder)),
    "no file": lambda backup, folder: (folder / RECORDS).unlink(),
    "no count": lambda backup, folder: (folder / "records.count").unlink(),
}


@pytest.mark.parametrize("restored", RESTORED)
@pytest.mark.parametrize("behind", [0, 2])
def test_a_file_from_a_backup_answers_nothing_before_the_operator_says_so(
    tmp_path, restored, behind
):
    file = tmp_path / "site" / RECORDS
    file.parent.mkdir()
    with RestoredRecords(file, limits=LIMITS) as records:
        enrol(records)
        give(records)
    shutil.copytree(file.parent, tmp_path / "backup")
    with RestoredRecords(file) as records:
        for round in range(2, 2 + behind):
            give(records, round)
    RESTORED[restored](tmp_path / "backup", file.parent)
    for _ in range(2):
        with RestoredRecords(file, limits=caps(9.0, 1e-5)) as records:
            assert records.refusal
            for call in (
                lambda: ask(records, 1),
                lambda: ask(records, 2),
                lambda: ask(records, job=job("unknown here")),
                lambda: enrol(records, never),
                lambda: records.afford(FACTS),
                lambda: records.private_key(JOB),
            ):
                refused("restored from a backup", call)
    with RestoredRecords(file) as records:
        spent = records.missing() or "nothing"
        assert spent == ("1,1e-06,user" if restored == "no file" else "nothing")
        assert records.close_all(spent) == (restored != "no file")
        assert not records.refusal
        if restored != "no file":
            refused("closed by the operator", give, records)
    with RestoredRecords(file) as records:
        give(records, job=job("new"))
        assert give(records, 2, job=job("new"))


def test_a_death_does_not_hide_a_backup(tmp_path):
    """After it nobody knows when the file was last changed; a backup may be one behind alone."""
    backups = {}
    for behind in (1, 2):
        file = tmp_path / str(behind) / RECORDS
        file.parent.mkdir()
        with RestoredRecords(file) as records:
            for round in (1, 2, 3):
                give(records, round)
                backups[file] = file.read_bytes() if round <= 4 - behind else backups[file]
    died(*(("after round 4", file) for file in backups))
    for file, backup in backups.items():
        file.write_bytes(backup)
        with RestoredRecords(file) as records:
            refused("restored from a backup", ask, records, 4)


# --- the key --------------------------------------------------------------------------------------


@dataclass
class Key:
    """A key, and folders of sites that are started with it."""

    folder: Path

    @property
    def count(self) -> Path:
        return self.folder / "signing.pem.records"

    def records(self, state: str, count: Path | None = None) -> RestoredRecords:
        (self.folder / state).mkdir(exist_ok=True)
        return RestoredRecords(
            self.folder / state / RECORDS, limits=LIMITS, count=count or self.count
        )

    def refused(self, output: str, state: str) -> None:
        """Nothing is answered there."""
        with self.records(state) as records:
            for call in (ask, enrol):
                refused(output, call, records, job=job("new"))


@pytest.fixture
def key(tmp_path):
    """It has spent all of its budget in folder "a"."""
    key = Key(tmp_path)
    with key.records("a") as records:
        give(records, epsilon=2.0)
    assert stat.S_IMODE(key.count.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a" / RECORDS).stat().st_mode) == 0o600
    return key


ANOTHER = (
    r"have the id [0-9a-f]{12}, and .*signing\.pem\.records, .*of records [0-9a-f]{12}: .*"
    "fedcal site restored --spent"
)


def test_a_second_or_a_new_folder_is_not_the_key_s(key):
    for state in ("b", "a"):
        if state == "a":
            shutil.rmtree(key.folder / "a")
        key.refused(ANOTHER, state)
        with key.records(state) as records:
            refused("at least 2,1e-06,user", records.close_all, "nothing")


def test_what_the_operator_says_was_spent_is_booked(key):
    with key.records("b") as records:
        refused("at least 2,1e-06,user", records.close_all, "1.5,1e-6,user")
        refused("--spent must be EPSILON,DELTA,UNIT", records.close_all, "2,1e-6")
        assert records.refusal
        assert records.close_all("2,1e-6,user") == 0
        assert not records.refusal
    with key.records("b") as records:
        (known,) = records.booked()
        assert (known.method, known.epsilon) == ("carried over", 2.0)
        assert known.closed == "carried over"
        refused("epsilon 2 of 2 is spent", ask, records, job=job("new"), error=BudgetExceeded)
    key.refused("have the id", "a")  # it is not the key's any more
    with key.records("a") as records:
        records.close_all("nothing")
        assert len(records.booked()) == 1


def test_a_copied_folder_is_not_the_key_s(key):
    subprocess.run(["cp", "-a", key.folder / "a", key.folder / "copy"], check=True)
    key.refused("restored from a backup", "copy")
    with key.records("a") as records:
        assert not records.refusal
        assert ask(records, epsilon=2.0)[1]
    with key.records("copy") as records:
        records.close_all("nothing")
    key.refused("have the id", "a")


def test_a_folder_put_back_by_itself_in_mid_transaction_is_noticed(key):
    """Its count file says that a transaction was under way; the key's says which came after it."""
    state = key.folder / "a"
    died(("after the key's last", state / RECORDS))
    shutil.copytree(state, key.folder / "backup")
    with key.records("a") as records:
        give(records, 3, epsilon=2.0)
    shutil.rmtree(state)
    shutil.copytree(key.folder / "backup", state)
    key.refused("restored from a backup", "a")


def test_a_death_lets_no_other_folder_pass(key):
    """Not even one with as many transactions, by its own count."""
    died(("after the key's last", key.folder / "a" / RECORDS))
    left = int(key.count.read_text().split()[0])
    (key.folder / "b").mkdir()
    with RestoredRecords(key.folder / "b" / RECORDS) as records:
        for round in range(1, left + 1):
            give(records, round)
        ((number,),) = records.rows("SELECT transactions FROM state")
        assert number == left
    key.refused("have the id", "b")


# --- the file -----------------------------------------------------------------------------------


def test_records_of_another_version_or_with_triggers_are_refused(file):
    RestoredRecords(file).close()
    forgets = "CREATE TRIGGER t AFTER UPDATE ON jobs BEGIN UPDATE jobs SET epsilon = 0; END"
    version = r"version of records .* \(fedcal 0\.2\.0 makes 2 of 1\) must be 2.* 1"
    changes = ("PRAGMA user_version = 1", version), (forgets, "unexpected triggers or views")
    for statement, output in changes:
        with closing(sqlite3.connect(file)) as db:
            db.execute(statement)
        refused(output, RestoredRecords, file)


@pytest.mark.parametrize("text", ["7 8 9", "a b c d e", "\xff"])
def test_a_damaged_count_file_is_refused(file, text):
    RestoredRecords(file).close()
    file.with_suffix(".count").write_text(text, "latin-1")
    refused("count file of records .* is damaged", RestoredRecords, file)
