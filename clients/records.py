"""What a site has sent and signed, and what it was charged: one SQLite file a site.

A *job* is one run of one method, named by the digest of its public facts; a site is asked in each
of its rounds. The first answer charges the job's whole epsilon and delta, in the same transaction
that keeps the answer. Over jobs epsilons add up and deltas add up, as in `fedcal.privacy.ledger`:
a privacy filter by basic composition, which stays valid when a server chooses a job after seeing
the results of earlier ones. The sums are statements about one unit of privacy, so each unit has
its own. Exact sums (epsilon infinite) are written down and are in no sum.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedcal.checks import whole
from fedcal.clients.count_file import CountFile
from fedcal.clients.job_facts import Booked
from fedcal.clients.job_facts import JobFacts as JobFacts  # also found here
from fedcal.clients.job_facts import Limits as Limits
from fedcal.database import Database
from fedcal.errors import InputError
from fedcal.privacy.ledger import check_caps

KEPT_JOBS = 20
"""Jobs that were answered, and as many that were enrolled in alone, that are open; older ones of
the same kind are closed, so that enrolments close no job that was booked."""

KEPT_ENROLMENTS = 1000
"""Closed jobs without an answer or a signature that are remembered; older ones are forgotten."""

KEPT_ROUNDS = 4
"""Rounds of a job whose answers are kept: a server that goes on asks the last one again."""

PUT_BACK = (
    "were put back from a backup, it seems: nothing is answered until `fedcal site restored` is "
    "called"
)

_APPLICATION, _VERSION = 0x6663_7372, 1  # "fcsr" in SQLite's application_id
_JOB = re.compile("[0-9a-f]{64}")
_LAST = 2**62  # a round that no job has
_PUSHED_OUT = f"{KEPT_JOBS} later jobs"

_FACTS = tuple(field.name for field in fields(JobFacts))
_AGREED = frozenset(_FACTS) - {"server", "expires"}  # the job's digest stands for these

_TABLES = (
    "CREATE TABLE state (transactions INTEGER NOT NULL, epsilon REAL, delta REAL)",
    "INSERT INTO state VALUES (0, NULL, NULL)",
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


class SiteRecords(AbstractContextManager["SiteRecords"]):
    """The records of one site.

    Formal guarantees, against a server that asks whatever it likes as often as it likes, over
    crashes of the site at any moment:

    * of each job and round at most one answer leaves the site, and one signature over a set of
      contributors;
    * none leaves that is not on the disk, and no answer without its charge; the charges of each
      unit stay within the limits;
    * after `finish`, `expire` or `close_all` the file holds neither private key nor answers of
      the job, and nothing of it is answered again.

    Assumed is a file that is not put back from a backup. A copy of the file, or of the site's
    folder, that was put back is noticed (`restored`), and then nothing is answered until
    `close_all`. An image of the whole disk or machine that was put back cannot be noticed: the
    operator must call `close_all`. Charges since the backup are lost in either case.

    Parameters
    ----------
    path
        the file, made if it is not there, which only this user can read; beside it a file of the
        same name with the suffix ``.count``. None = in memory, for simulations
    limits
        None = those that the file was last opened with, or none at all

    Raises
    ------
    InputError
        If the file cannot be written, or is something else. So do all methods if it cannot be
        used; FedcalError if the disk is full.

    Notes
    -----
    Use it as a context manager. Threads and processes may share a file, but not one object over a
    fork. What is deleted is overwritten in the file (``PRAGMA secure_delete``); a file system, a
    solid-state disk or a backup may keep older copies of it.
    """

    def __init__(self, path: Path | None, *, limits: Limits | None = None) -> None:
        self._lock, self._inside = threading.RLock(), False
        if path is not None:
            _make_private(path)
        self._db = Database(path, "records")
        self._count = None if path is None else CountFile(path)
        try:
            with self._held():
                # the file changes in commits alone: `CountFile` looks at when it did
                for pragma in ("secure_delete = ON", "cache_spill = OFF"):
                    self._db.rows(f"PRAGMA {pragma}")
                with self._db.transaction():
                    self._open()
                if self._count is not None and not self._is_old():
                    self._count.committed(self._transactions)
            if limits is not None and limits != self.limits and not self.restored:
                with self._transaction():
                    caps = (limits.epsilon, limits.delta)
                    self._db.execute("UPDATE state SET epsilon = ?, delta = ?", caps)
        except BaseException:
            self.close()
            raise

    def enrol(self, job: str, about: JobFacts, make: Callable[[], tuple[bytes, bytes]]) -> bytes:
        """The signed enrolment of this site in a job, made once.

        Parameters
        ----------
        job
            its digest, 64 hexadecimal digits
        about
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
        with self._transaction():
            if self._known(job, about):
                ((enrolment,),) = self._of_job("enrolment", job)
                if enrolment is None:
                    raise InputError("this job was answered without enrolment")
                return bytes(enrolment)
            self._afford(job, about)
            private_key, enrolment = make()
            self._add(job, about)
            self._db.execute(
                "UPDATE jobs SET private_key = ?, enrolment = ? WHERE job = ?",
                (private_key, enrolment, job),
            )
            return enrolment

    def private_key(self, job: str) -> bytes:
        """The private key of a job; InputError if there is none, or none any more."""
        with self._transaction():
            for (key,) in self._of_job("private_key", job):
                if key is not None:
                    return bytes(key)
        raise InputError(f"there is no private key of job {job[:12]}, or none any more")

    def answer(
        self,
        job: str,
        about: JobFacts,
        round: int,
        question: str,
        draw: Callable[[], bytes],
        *,
        asked_once: bool = False,
    ) -> tuple[bytes, bool]:
        """The answer of this round, drawn now or kept since the question came first.

        Parameters
        ----------
        job, about
            as `enrol` takes them
        round
            from 1 to ``about.rounds``
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
        with self._transaction():
            known = self._known(job, about)
            whole("the number of a round", round, 1, about.rounds)
            of_round = "SELECT question, answer FROM answers WHERE job = ? AND round = ?"
            for asked, kept in self._db.rows(of_round, (job, round)):
                if asked != question:
                    raise InputError("this round was asked before with another question")
                if kept is None:
                    raise InputError("this round is an old one, whose answer is no longer kept")
                return bytes(kept), True
            if not self._db.rows("SELECT 1 FROM answers WHERE job = ? LIMIT 1", (job,)):
                self._afford(job, about)
            elif asked_once:
                raise InputError("in this job each client is asked once, and this one was")
            answer = draw()
            if not known:
                self._add(job, about)
            booked = "UPDATE jobs SET booked = coalesce(booked, ?), used = ? WHERE job = ?"
            self._db.execute(booked, (time.time(), self._transactions + 1, job))
            values = (job, round, question, answer)
            self._db.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", values)
            self._forget(job, round - KEPT_ROUNDS)
            self._close_oldest("IS NOT NULL")
        return answer, False

    def confirm(
        self, job: str, round: int, digest: str, make: Callable[[], tuple[bytes, bytes]]
    ) -> bytes:
        """The signature over the one set of contributors to a round that this site ever signs.

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
        with self._transaction():
            if not self._known(job):
                raise InputError(f"this site has not enrolled in job {job[:12]}")
            for signed, signature, _ in self._signed(job, round):
                if signed != digest:
                    raise InputError("another set of contributors was signed for this round")
                return bytes(signature)
            signature, sums = make()
            values = (job, round, digest, signature, sums)
            self._db.execute("INSERT INTO signatures VALUES (?, ?, ?, ?, ?)", values)
            return signature

    def sums(self, job: str, round: int, digest: str) -> bytes:
        """What was kept with the signature of this digest; InputError if there is none."""
        with self._transaction():
            self._known(job)
            for signed, _, sums in self._signed(job, round):
                if signed == digest and sums is not None:
                    return bytes(sums)
        raise InputError("nothing is kept for this round and this set of contributors")

    def has_booked(self, job: str) -> bool:
        """Return whether this site has answered in a job, open or closed."""
        with self._transaction():
            return any(booked is not None for (booked,) in self._of_job("booked", job))

    def finish(self, job: str) -> None:
        """Delete the secrets and answers of a job; its name, rounds and charge stay for ever."""
        with self._transaction():
            self._close(job, "finished")

    def expire(self, now: float) -> None:
        """Do the same with all jobs that have expired at `now`, a unix time."""
        with self._transaction():
            for (job,) in self._db.rows(
                "SELECT job FROM jobs WHERE closed IS NULL AND expires <= ?", (now,)
            ):
                self._close(job, "expired")

    def close_all(self) -> int:
        """Do the same with all jobs, and answer again if the file was put back from a backup.

        Jobs that began after that backup are not known here. Whoever runs the server must have
        ended them: else one of their rounds could be answered again, with fresh noise.

        Returns
        -------
        int
            how many jobs were open
        """
        with self._transaction(check=False):
            jobs = self._db.rows("SELECT job FROM jobs WHERE closed IS NULL")
            for (job,) in jobs:
                self._close(job, "closed by the operator")
            self._db.execute("UPDATE state SET transactions = transactions")  # is written anyway
            return len(jobs)

    @property
    def unfinished(self) -> int:
        """How many jobs are neither finished, expired nor closed."""
        ((number,),) = self._db.rows("SELECT COUNT(*) FROM jobs WHERE closed IS NULL")
        return int(number)

    def booked(self) -> tuple[Booked, ...]:
        """All jobs that were charged, oldest first."""
        names = ", ".join(f"jobs.{name}" for name in ("job", *_FACTS, "booked", "closed"))
        found: dict[str, Booked] = {}
        with self._lock:
            rows = self._db.rows(
                f"SELECT {names}, round FROM jobs JOIN answers USING (job)"
                " WHERE booked IS NOT NULL ORDER BY jobs.rowid, round"
            )
        for job, *facts, when, closed, round in rows:
            before = found[job].answered if job in found else ()
            found[job] = Booked(job, JobFacts(*facts), when, (*before, round), closed or "")
        return tuple(found.values())

    @property
    def limits(self) -> Limits | None:
        """What the charges of each unit may add up to; None = anything."""
        ((epsilon, delta),) = self._db.rows("SELECT epsilon, delta FROM state")
        return None if epsilon is None else Limits(epsilon, delta)

    @property
    def restored(self) -> bool:
        """Whether the file is not the one that was left here: it came from a backup, it seems."""
        with self._lock, self._held():
            return self._is_old()

    def _is_old(self) -> bool:
        return self._count is not None and not self._count.agrees(self._transactions)

    @property
    def _transactions(self) -> int:
        ((number,),) = self._db.rows("SELECT transactions FROM state")
        return int(number)

    def _held(self) -> AbstractContextManager[None]:
        return nullcontext() if self._count is None else self._count.held()

    def _open(self) -> None:
        """Make the tables, or see that they are there. Within a transaction."""
        if self._db.is_new(_APPLICATION):
            for table in _TABLES:
                self._db.execute(table)
            self._db.mark(_APPLICATION, _VERSION)
        if self._db.version != _VERSION:
            raise InputError(
                f"{self._db.name} have version {self._db.version}; this fedcal reads version "
                f"{_VERSION}"
            )

    @contextmanager
    def _transaction(self, *, check: bool = True) -> Iterator[None]:
        """All of it or nothing is on the disk at the end; a file from a backup is refused."""
        with self._lock:
            if self._inside:  # what is drawn may read the private key
                yield
                return
            with self._held():
                with self._db.transaction():
                    if check and self._is_old():
                        raise InputError(f"{self._db.name} {PUT_BACK}")
                    before, self._inside = self._db.changes, True
                    try:
                        yield
                    finally:
                        self._inside = False
                    if changed := self._db.changes > before:
                        number = self._transactions + 1
                        if self._count is not None:
                            number = self._count.next(self._transactions)
                        self._db.execute("UPDATE state SET transactions = ?", (number,))
                if changed and self._count is not None:
                    self._count.committed(number)

    def _of_job(self, columns: str, job: str) -> list[tuple[Any, ...]]:
        return self._db.rows(f"SELECT {columns} FROM jobs WHERE job = ?", (job,))

    def _signed(self, job: str, round: int) -> list[tuple[Any, ...]]:
        return self._db.rows(
            "SELECT digest, signature, sums FROM signatures WHERE job = ? AND round = ?",
            (job, round),
        )

    def _known(self, job: str, about: JobFacts | None = None) -> bool:
        """Whether the job is in the file; InputError if it is closed, expired or another one."""
        if not _JOB.fullmatch(job):
            raise InputError(f"a job is named by 64 hexadecimal digits, got {job[:80]!r}")
        kept = about
        rows = self._of_job(", ".join((*_FACTS, "closed")), job)
        for *facts, closed in rows:
            kept = JobFacts(*facts)
            if closed is not None:
                raise InputError(f"nothing of job {job[:12]} is answered any more: {closed}")
            if about is not None and any(getattr(about, n) != getattr(kept, n) for n in _AGREED):
                raise InputError(f"job {job[:12]} was written down with other facts")
        if kept is not None and kept.expires <= time.time():
            raise InputError(f"job {job[:12]} has expired")
        return bool(rows)

    def _afford(self, job: str, about: JobFacts) -> None:
        """BudgetExceeded if the job's charge does not fit the limits."""
        if (limits := self.limits) is None or about.exact:
            return
        spent = self._db.rows(
            "SELECT epsilon, delta FROM jobs WHERE booked IS NOT NULL AND unit = ?"
            " AND epsilon < ? AND job != ?",
            (about.unit, math.inf, job),
        )
        name = f"{self._db.name}, unit {about.unit}"
        check_caps(name, job[:12], (about.epsilon, about.delta), spent, (*vars(limits).values(),))

    def _add(self, job: str, about: JobFacts) -> None:
        """Write a new job down; the oldest of too many without an answer are closed, forgotten."""
        names = ("job", *_FACTS, "used")
        values = (job, *vars(about).values(), self._transactions + 1)
        self._db.execute(
            f"INSERT INTO jobs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", values
        )
        self._close_oldest("IS NULL")
        self._db.execute(
            "DELETE FROM jobs WHERE job IN (SELECT job FROM jobs WHERE closed = ? AND booked IS"
            " NULL AND job NOT IN (SELECT job FROM signatures) ORDER BY used DESC"
            " LIMIT -1 OFFSET ?)",
            (_PUSHED_OUT, KEPT_ENROLMENTS),
        )

    def _close_oldest(self, booked: str) -> None:
        """Close the oldest of too many open jobs, of those whose `booked` is so."""
        for (old,) in self._db.rows(
            f"SELECT job FROM jobs WHERE closed IS NULL AND booked {booked}"
            " ORDER BY used DESC LIMIT -1 OFFSET ?",
            (KEPT_JOBS,),
        ):
            self._close(old, _PUSHED_OUT)

    def _forget(self, job: str, last: int) -> None:
        """Delete what was sent and what would be opened of the rounds up to `last`."""
        for table, column in (("answers", "answer"), ("signatures", "sums")):
            self._db.execute(
                f"UPDATE {table} SET {column} = NULL"
                f" WHERE job = ? AND round <= ? AND {column} IS NOT NULL",
                (job, last),
            )

    def _close(self, job: str, why: str) -> None:
        self._db.execute(
            "UPDATE jobs SET closed = ?, private_key = NULL, enrolment = NULL"
            " WHERE job = ? AND closed IS NULL",
            (why, job),
        )
        self._forget(job, _LAST)

    def close(self) -> None:
        """Close the file; records in memory are gone. Closing twice is no error."""
        self._db.close()
        if self._count is not None:
            self._count.close()
            self._count = None

    def __exit__(self, *error: object) -> None:
        self.close()


def _make_private(path: Path) -> None:
    """Make the file, if it is not there, so that only this user can read and write it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return  # left alone: to close it again would drop SQLite's locks of this process
    except OSError as e:
        raise InputError(f"cannot write {path}: {e.strerror}") from None
