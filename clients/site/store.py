"""Records of a site: what it has sent and signed, and its charges, in one SQLite file.

A *job* is one run of one method, named by the digest of its public facts; a site is asked in each
of its rounds. The first answer charges the job's whole epsilon and delta, in the same transaction
that keeps the answer. Over jobs epsilons add up and deltas add up, as in `fedcal.privacy.ledger`:
a privacy filter by basic composition, which stays valid when a server chooses a job after seeing
the results of earlier ones. There is one account over jobs of all units, for the smallest of them
(`fedcal.clients.site.policy.account`): a row is in its subject and in its client, and pays for
all three. Exact sums (epsilon infinite) are written down and are in no sum.

A small second file beside the site's key says which records are those of the key, and how they
were left: what was put back from a backup, copied or begun anew differs from that.
"""

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from fedcal.clients.site import policy
from fedcal.clients.site.guard import Prepared, count_file
from fedcal.clients.site.policy import JobFacts, Policy
from fedcal.core.checks import InputError, damaged, integer, needed, same, system_errors
from fedcal.privacy.privacy import check_caps
from fedcal.storage.atomic import posix_locks
from fedcal.storage.database import Database

RECORDS = "records.sqlite"
"""The file in a site's folder."""

KEPT_JOBS = 20
"""Jobs with an answer that are open, and as many with a signature alone, as older ones are closed;
and as many that were enrolled in alone, as older ones are forgotten: these may begin again."""

KEPT_ROUNDS = 4
"""Rounds of a job whose answers are kept: a server that goes on asks the last one again."""

PUT_BACK = (
    "seem to be restored from a backup: no request is answered until `fedcal site restored` is "
    "called"
)

_LAST = 2**62  # a round that no job has
_SIGNED = "job IN (SELECT job FROM signatures)"
_BINDING = f"(booked IS NOT NULL OR {_SIGNED})"
_PUSHED_OUT = f"{KEPT_JOBS} later jobs"
_TOO_MANY = f"ORDER BY used DESC LIMIT -1 OFFSET {KEPT_JOBS}"

_FACTS = [field.name for field in fields(JobFacts)]  # columns

_APPLICATION, _VERSION = 0x6663_7372, 2  # "fcsr" in SQLite's application_id
_NOW = "(SELECT transactions + 1 FROM state)"
NEW_ID = "UPDATE state SET id = lower(hex(randomblob(16)))"
_TABLES = (
    "CREATE TABLE state (transactions INTEGER NOT NULL, epsilon REAL, delta REAL,"
    " id TEXT NOT NULL DEFAULT '')",
    "INSERT INTO state (transactions) VALUES (0)",
    NEW_ID,
    "CREATE TABLE jobs (job TEXT PRIMARY KEY, method TEXT NOT NULL, unit TEXT NOT NULL,"
    " trust TEXT NOT NULL, adjacency TEXT NOT NULL, mechanism TEXT NOT NULL,"
    " epsilon REAL NOT NULL, delta REAL NOT NULL, rounds INTEGER NOT NULL,"
    " verified TEXT NOT NULL, server TEXT NOT NULL, expires REAL NOT NULL,"
    " used INTEGER NOT NULL, booked REAL, closed TEXT, private_key BLOB, enrolment BLOB)",
    "CREATE TABLE answers (job TEXT NOT NULL REFERENCES jobs, round INTEGER NOT NULL,"
    " question TEXT NOT NULL, answer BLOB, PRIMARY KEY (job, round))",
    "CREATE TABLE signatures (job TEXT NOT NULL REFERENCES jobs, round INTEGER NOT NULL,"
    " digest TEXT NOT NULL, signature BLOB, sums BLOB, PRIMARY KEY (job, round))",
)

_WIDTH = 256
_COMMITTING = 0  # in place of the time: a transaction is being committed, or was when it all ended


class _Left(NamedTuple):
    """Entries of the count file: number of transactions, time, time before the last, id, budget."""

    number: int
    changed: int
    before: int
    records: str  # "" = there were none
    spent: str = "nothing"


class SiteRecords(Database):
    """The records of one site.

    Formal guarantees, against a server that asks whatever it likes as often as it likes, over
    crashes of the site at any moment:

    * of each job and round at most one answer leaves the site, and one signature over a set of
      contributors;
    * none leaves that is not on the disk, and no answer without its charge; the account of all
      charges, and that of each year, stays within the limits;
    * after `finish` or `RestoredRecords.close_all`, and once records are opened after a job has
      expired, the file holds neither private key nor answers of the job, and nothing of it is
      answered again.

    Assumed is that a key's count file stays with the key, that the file is not put back from a
    backup, and that the site's clock is right. A file that is new, a second or a copied one under a
    key that has records, and one that was put back, are noticed (`refusal`), and then nothing is
    answered until `close_all`. An image of the whole disk or machine that was put back cannot be
    noticed: the operator must call `close_all`, in which the operator says which charges are
    missing; the key's file says how many at least.

    Parameters
    ----------
    path
        the file, made if it is not there, which only this user can read. None = in memory, for
        simulations
    limits
        None = the total that the file was last opened with, or none at all
    count
        the key's count file, made with mode 0600 if it is not there; None = beside the records,
        with the suffix ``.count``

    Raises
    ------
    InputError
        If a file cannot be written, or is something else. So do all methods if it cannot be used,
        or the disk is full.

    Notes
    -----
    Use it as a context manager. Threads and processes may share a file, but not one object over a
    fork. What is deleted is overwritten in the file (``PRAGMA secure_delete``); a file system, a
    solid-state disk or a backup may keep older copies of it.
    """

    def __init__(
        self, path: Path | None, *, limits: Policy | None = None, count: Path | None = None
    ) -> None:
        self.limits, self._path, self._keyed, self._cut_off = limits, path, bool(count), False
        if path is not None:
            self._count_path = count or path.with_suffix(".count")
            with system_errors(f"cannot write {path} or {self._count_path}"):
                # one that is there is left alone: touched, it would seem to have changed
                with suppress(FileExistsError):
                    path.touch(0o600, exist_ok=False)
                self._count = os.open(self._count_path, os.O_RDWR | os.O_CREAT, 0o600)
            weakref.finalize(self, os.close, self._count)
        super().__init__(path, "records")
        try:
            with self._held():
                # the file changes in commits alone: the count file says when it did
                for pragma in ("secure_delete = ON", "cache_spill = OFF"):
                    self.rows(f"PRAGMA {pragma}")
                with super().transaction():
                    version = self.make(_APPLICATION, _VERSION, _TABLES) or _VERSION
                same(f"version of {self.name} (fedcal 0.2.0 makes 2 of 1)", version, _VERSION)
                if not (refused := self._refusal()):
                    self._leave(self._changed)
            if not refused:
                with self.transaction():
                    self._close("expires <= ?", time.time(), why="expired")
        except BaseException:
            self.close()
            raise

    # --- jobs -------------------------------------------------------------------------------

    def enrol(self, job: JobFacts, make: Callable[[], tuple[bytes, bytes]]) -> bytes:
        """Return the signed enrolment of this site in a job, made once.

        Parameters
        ----------
        job
            what it is
        make
            the job's private key and the enrolment; called at most once in the life of a job

        Raises
        ------
        BudgetExceeded
            If the job could not be charged.
        InputError
            If the job is closed, has expired, or was answered without enrolment.
        """
        with self.transaction():
            if self._known(job.job, job):
                ((made,),) = self.rows("SELECT enrolment FROM jobs WHERE job = ?", (job.job,))
                return bytes(needed("an enrolment", made, "this job was answered without it"))
            self._afford(job)
            private_key, enrolment = make()
            self._add(job, private_key=private_key, enrolment=enrolment)
            return enrolment

    def afford(self, job: JobFacts) -> None:
        """Refuse a job that could not be answered now; nothing is written.

        Raises
        ------
        BudgetExceeded
            If the job could not be charged.
        InputError
            If the job is closed or has expired.
        """
        with self.transaction():
            self._known(job.job, job)
            self._afford(job)

    def private_key(self, job: str) -> bytes:
        """Return the private key of a job; InputError if it has none, or no longer."""
        with self.transaction():
            rows = self.rows("SELECT private_key FROM jobs WHERE job = ?", (job,))
        ((key,),) = rows or [(None,)]
        return bytes(needed(f"the private key of job {job[:12]}", key, "it is absent or deleted"))

    def answer(
        self,
        job: JobFacts,
        round: int,
        question: str,
        draw: Callable[[], bytes],
        *,
        asked_once: bool = False,
    ) -> tuple[bytes, bool]:
        """Return the answer of this round, drawn now or kept since the question first came.

        Parameters
        ----------
        job
            what it is
        round
            from 1 to ``job.rounds``
        question
            digest of all that the answer follows from
        draw
            computes the answer; called at most once in the life of a round, unless it raises,
            and then nothing is charged or kept
        asked_once
            whether a client answers in one round of the job only

        Returns
        -------
        tuple[bytes, bool]
            the answer, and whether it had been given before

        Raises
        ------
        BudgetExceeded
            If the job does not fit the limits: nothing is drawn or kept.
        InputError
            If the round was asked before with another question, or the job is closed or expired.
        """
        with self.transaction():
            known = self._known(job.job, job)
            integer("the number of a round", round, 1, job.rounds)
            of_job = "SELECT round, question, answer FROM answers WHERE job = ?"
            rounds = {number: asked for number, *asked in self.rows(of_job, (job.job,))}
            if round in rounds:
                asked, sent = rounds[round]
                same("question of a round that was asked before", question, asked)
                why = "this round is an old one, whose answer was deleted"
                return bytes(needed("the answer that was sent", sent, why)), True
            if not rounds:
                self._afford(job)
            elif asked_once:
                raise InputError("in this job each client answers once, and this one has answered")
            answer = draw()
            if not known:
                self._add(job)
            booked = f"UPDATE jobs SET booked = coalesce(booked, ?), used = {_NOW} WHERE job = ?"
            self.execute(booked, (time.time(), job.job))
            values = (job.job, round, question, answer)
            self.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", values)
            self._forget(job.job, round - KEPT_ROUNDS)
            self._close(f"booked IS NOT NULL {_TOO_MANY}", why=_PUSHED_OUT)
        return answer, False

    def confirm(
        self, job: str, round: int, digest: str, make: Callable[[], tuple[bytes, bytes]]
    ) -> bytes:
        """Return the signature over the one set of contributors that this site signs in a round.

        Parameters
        ----------
        job, round
            of an open job that the site has enrolled in
        digest
            what is signed
        make
            the signature, and what will be opened for it; called at most once in the life of a
            round

        Raises
        ------
        InputError
            If another set was signed, or the job is unknown, closed or expired.
        """
        with self.transaction():
            for signed, signature, _ in self._signed(job, round):
                same("set of contributors of a round that was signed before", digest, signed)
                return bytes(signature)
            signature, sums = make()
            values = (job, round, digest, signature, sums)
            self.execute("INSERT INTO signatures VALUES (?, ?, ?, ?, ?)", values)
            self.execute(f"UPDATE jobs SET used = {_NOW} WHERE job = ?", (job,))
            self._close(f"booked IS NULL AND {_SIGNED} {_TOO_MANY}", why=_PUSHED_OUT)
            return signature

    def sums(self, job: str, round: int, digest: str) -> bytes:
        """Return the sums kept with the signature of this digest; InputError if there are none."""
        with self.transaction():
            saved = {signed: sums for signed, _, sums in self._signed(job, round)}
        why = "none are saved for this round and this set of contributors"
        return bytes(needed("the sums of a signature", saved.get(digest), why))

    def finish(self, job: str) -> None:
        """Delete the secrets and answers of a job; its name, rounds and charge stay for ever."""
        with self.transaction():
            self._close("job = ?", job, why="finished")

    @property
    def unfinished(self) -> int:
        """Number of jobs that are neither finished, expired nor closed."""
        return len(self._jobs("closed IS NULL"))

    def booked(self) -> tuple[JobFacts, ...]:
        """All jobs that were charged, oldest first."""
        with self._lock:
            return tuple(self._jobs("booked IS NOT NULL ORDER BY rowid"))

    def _jobs(self, where: str, *values: object) -> list[JobFacts]:
        rows = self.rows(f"SELECT {', '.join(_FACTS)} FROM jobs WHERE {where}", values)
        return [JobFacts(*row) for row in rows]

    def _known(self, name: str, job: JobFacts | None = None) -> bool:
        """Return whether a job is in the file; InputError if it is closed or expired.

        Its digest, the name, stands for its other facts. Without `job` it must be there.
        """
        rows = self._jobs("job = ?", name)
        job = needed(f"job {name[:12]}", [*rows, job][0], "this site has not enrolled in it")
        if job.closed is not None or job.expires <= time.time():
            why = job.closed or "it has expired"
            raise InputError(f"job {name[:12]} is no longer answered: {why}")
        return bool(rows)

    def _signed(self, job: str, round: int) -> list[tuple[Any, ...]]:
        self._known(job)
        return self.rows(
            "SELECT digest, signature, sums FROM signatures WHERE job = ? AND round = ?",
            (job, round),
        )

    def _afford(self, job: JobFacts) -> None:
        """BudgetExceeded if the job's charge does not fit the limits in all, or of this year."""
        if (limits := self.limits) is None or job.exact:
            return
        others = self._jobs("booked IS NOT NULL AND job != ?", job.job)
        unit, (asked, *spent) = policy.account([job, *others])
        year = limits.year(time.time())
        years = (limits.year(one.booked or 0.0) for one in others)
        of_year = [cost for cost, its in zip(spent, years, strict=True) if its == year]
        name, in_year = f"{self.name}, unit {unit}", limits.in_words(year)
        total = limits.epsilon_total, limits.delta_total
        a_year = limits.epsilon_a_year, limits.delta_a_year
        check_caps(name, job.job[:12], asked, spent, total)
        check_caps(f"{name}, {in_year}", job.job[:12], asked, of_year, a_year)

    def _add(self, job: JobFacts, **more: object) -> None:
        """Write a new job down; of too many that bind this site to nothing the oldest go."""
        row = {name: getattr(job, name) for name in _FACTS} | more
        columns, values = ", ".join(row), ", ".join("?" * len(row))
        insert = f"INSERT INTO jobs ({columns}, used) VALUES ({values}, {_NOW})"
        self.execute(insert, tuple(row.values()))
        idle = f"SELECT job FROM jobs WHERE closed IS NULL AND NOT {_BINDING} {_TOO_MANY}"
        self.execute(f"DELETE FROM jobs WHERE job IN ({idle})")

    def _forget(self, job: str, last: int) -> None:
        """Delete what was sent and what would be opened of the rounds up to `last`."""
        for table, column in (("answers", "answer"), ("signatures", "sums")):
            self.execute(
                f"UPDATE {table} SET {column} = NULL"
                f" WHERE job = ? AND round <= ? AND {column} IS NOT NULL",
                (job, last),
            )

    def _close(self, which: str, *values: object, why: str) -> None:
        """Delete what must not stay of open jobs, and answer nothing of them again."""
        for job in self._jobs(f"closed IS NULL AND {which}", *values):
            self.execute(
                "UPDATE jobs SET closed = ?, private_key = NULL, enrolment = NULL WHERE job = ?",
                (why, job.job),
            )
            self._forget(job.job, _LAST)

    # --- the file, and whether it is the key's ----------------------------------------------

    @property
    def refusal(self) -> str:
        """The reason why nothing is answered, to follow the file's name; "" = there is none."""
        with self._held():
            return self._refusal()

    def _refusal(self) -> str:
        """Compare the file with what the count file says of it.

        After a death in a transaction nobody wrote down when the database last changed. If it has
        the transaction, no earlier copy has. If not, nothing was written to it since the time
        before, or a journal is there by which SQLite takes back what was. A copy that was put back
        has neither, unless it was made in mid-transaction, or put beside that very journal.
        """
        left, changed, (number, own) = self._left, self._changed, self._state
        is_own = left.records in ("", own)
        done = number == left.number and left.changed in (_COMMITTING, changed)
        undone = number == left.number - 1 and left.changed == _COMMITTING
        undone &= self._cut_off or left.before == changed
        if self._path is None or (is_own and (done or undone)):
            return ""
        if is_own or not self._keyed:
            return PUT_BACK
        return (
            f"have the id {own[:12]}, and {self._count_path}, the file of this site's key, is of "
            f"records {left.records[:12]}: use the folder with those, or enter with `fedcal site "
            "restored --spent` what they have spent"
        )

    @property
    def _state(self) -> tuple[int, str]:
        """Number of transactions, and id of these records."""
        ((number, own),) = self.rows("SELECT transactions, id FROM state")
        return number, own

    @property
    def _changed(self) -> int:
        return 0 if self._path is None else os.stat(self._path).st_ctime_ns

    @property
    def _left(self) -> _Left:
        """Return the entries of the count file; an empty file = no transaction yet."""
        words = b"" if self._path is None else os.pread(self._count, _WIDTH, 0)
        with damaged(f"the count file of {self.name} is damaged"):
            number, changed, before, *more = words.decode("ascii").split() or (0, 0, 0, "")
            return _Left(int(number), int(changed), int(before), *more)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Lock the records against other openers, in this process and others."""
        with self._lock:
            if self._path is None:
                yield
                return
            fcntl, journal = posix_locks(self._count_path), Path(f"{self._path}-journal")
            fcntl.flock(self._count, fcntl.LOCK_EX)
            try:  # nobody else is in a transaction now
                self._cut_off = journal.exists() and journal.stat().st_size > 0
                yield
            finally:
                fcntl.flock(self._count, fcntl.LOCK_UN)

    @contextmanager
    def transaction(self, *, check: bool = True) -> Iterator[None]:
        """All of it or nothing is on the disk at the end; a file not the key's is refused."""
        with self._held():
            with super().transaction():
                if check and (why := self._refusal()):
                    raise InputError(f"{self.name} {why}")
                before = self._connection.total_changes
                yield
                if changed := self._connection.total_changes > before:
                    self._number()
            if changed:
                self._leave(self._changed)

    def _number(self) -> None:
        """Give the transaction its number, on the disk in the count file before it is committed."""
        number = max(self._state[0], self._left.number) + 1
        self.execute("UPDATE state SET transactions = ?", (number,))
        self._leave(_COMMITTING, self._changed)

    def _leave(self, changed: int, before: int = 0) -> None:
        """Write how the file is left: in one write of less than a sector, it is there or not.

        After a crash before this is done with the time of the commit it is no restored backup.
        """
        if self._path is not None:
            spent = policy.in_text(policy.spent_in_all(self._jobs("booked IS NOT NULL")))
            number, own = self._state
            text = " ".join(map(str, _Left(number, changed, before, own, spent)))
            with system_errors(f"cannot write {self._count_path}"):
                os.pwrite(self._count, text.ljust(_WIDTH).encode(), 0)
                if changed == _COMMITTING:
                    os.fsync(self._count)


def records_in(folder: Path, limits: Policy | None = None) -> SiteRecords:
    """Open the records in a site's folder, by the file of its key that `prepare` wrote down."""
    return SiteRecords(folder / RECORDS, limits=limits, count=count_file(folder))


def records_of(site: Prepared) -> SiteRecords:
    """Return the site's records, within its policy's limits."""
    return records_in(site.folder, site.policy)
