"""What a site has sent and signed, and what it was charged: one SQLite file a site.

A *job* is one run of one method, named by the digest of its public facts; a site is asked in each
of its rounds. The first answer charges the job's whole epsilon and delta, in the same transaction
that keeps the answer. Over jobs epsilons add up and deltas add up, as in `fedcal.privacy.ledger`:
a privacy filter by basic composition, which stays valid when a server chooses a job after seeing
the results of earlier ones. There is one account over jobs of all units, for the smallest of them
(`fedcal.clients.site.records.job_facts.account`): a row is in its subject and in its client, and
pays for all three. Exact sums (epsilon infinite) are written down and are in no sum.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.clients.site.prepared import Prepared, check_answers, count_files
from fedcal.clients.site.records.job_facts import (
    CLAIMED,
    OWN_NOISE,
    Booked,
    BudgetCaps,
    JobFacts,
    account,
    carried_over,
    in_text,
    spent_in_all,
)
from fedcal.clients.site.records.records_file import FACTS, RECEIPTS, RecordsFile
from fedcal.core.checks import needed, read, same, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Words
from fedcal.privacy import agreement, ledger, noise_plan
from fedcal.privacy.request import Request
from fedcal.storage.atomic import write_whole

KEPT_JOBS = 20
"""Jobs that were answered, and as many that were enrolled in alone, that are open; older ones of
the same kind are closed, so that enrolments close no job that was booked."""

KEPT_ENROLMENTS = 1000
"""Closed jobs without an answer or a signature that are remembered; older ones are forgotten."""

KEPT_ROUNDS = 4
"""Rounds of a job whose answers are kept: a server that goes on asks the last one again."""

_LAST = 2**62  # a round that no job has
_PUSHED_OUT = f"{KEPT_JOBS} later jobs"

_AGREED = frozenset(FACTS) - {"server", "expires"}  # the job's digest stands for these


class SiteRecords(RecordsFile):
    """The records of one site.

    Formal guarantees, against a server that asks whatever it likes as often as it likes, over
    crashes of the site at any moment:

    * of each job and round at most one answer leaves the site, and one signature over a set of
      contributors;
    * none leaves that is not on the disk, and no answer without its charge; the account of all
      charges stays within the limits;
    * after `finish`, `expire` or `close_all` the file holds neither private key nor answers of
      the job, and nothing of it is answered again.

    Assumed is that a key's count file stays with the key, and that the file is not put back from a
    backup. A file that is new, a second or a copied one under a key that has records, and one that
    was put back, are noticed (`refusal`), and then nothing is answered until `close_all`. An image
    of the whole disk or machine that was put back cannot be noticed: the operator must call
    `close_all`, in which the operator says which charges are missing; the key's file and results at
    hand say how many at least.

    Parameters
    ----------
    path
        the file, made if it is not there, which only this user can read. None = in memory, for
        simulations
    limits
        None = those that the file was last opened with, or none at all
    count, count_before
        files that say which records are those of the site's key, as `RecordsFile` takes them

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

    def __init__(
        self,
        path: Path | None,
        *,
        limits: BudgetCaps | None = None,
        count: Path | None = None,
        count_before: Path | None = None,
    ) -> None:
        super().__init__(path, count, count_before)
        try:
            if limits is not None and limits != self.limits and not self.restored:
                with self._transaction():
                    caps = (limits.epsilon, limits.delta)
                    self._db.execute("UPDATE state SET epsilon = ?, delta = ?", caps)
        except BaseException:
            self.close()
            raise

    def enrol(self, job: str, about: JobFacts, make: Callable[[], tuple[bytes, bytes]]) -> bytes:
        """Return the signed enrolment of this site in a job, made once.

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
                why = "this job was answered without it"
                return bytes(needed("an enrolment", enrolment, why))
            self._afford(job, about)
            private_key, enrolment = make()
            self._add(job, about)
            self._db.execute(
                "UPDATE jobs SET private_key = ?, enrolment = ? WHERE job = ?",
                (private_key, enrolment, job),
            )
            return enrolment

    def afford(self, job: str, about: JobFacts) -> None:
        """Refuse a job that could not be answered now; nothing is written.

        Raises
        ------
        BudgetExceeded
            If the job could not be charged.
        InputError
            If the job is closed, has expired or was written down with other facts.
        """
        with self._transaction():
            self._known(job, about)
            self._afford(job, about)

    def private_key(self, job: str) -> bytes:
        """Return the private key of a job; InputError if it has none, or no longer."""
        with self._transaction():
            ((key,),) = self._of_job("private_key", job) or [(None,)]
        return bytes(needed(f"the private key of job {job[:12]}", key, "it is absent or deleted"))

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
        """Return the answer of this round, drawn now or kept since the question first came.

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
            for asked, sent in self._db.rows(of_round, (job, round)):
                same("question of a round that was asked before", question, asked)
                why = "this round is an old one, whose answer was deleted"
                return bytes(needed("the answer that was sent", sent, why)), True
            if not self._db.rows("SELECT 1 FROM answers WHERE job = ? LIMIT 1", (job,)):
                self._afford(job, about)
            elif asked_once:
                raise InputError("in this job each client answers once, and this one has answered")
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
        with self._transaction():
            self._known(job)
            for signed, signature, _ in self._signed(job, round):
                same("set of contributors of a round that was signed before", digest, signed)
                return bytes(signature)
            signature, sums = make()
            values = (job, round, digest, signature, sums)
            self._db.execute("INSERT INTO signatures VALUES (?, ?, ?, ?, ?)", values)
            return signature

    def sums(self, job: str, round: int, digest: str) -> bytes:
        """Return the sums kept with the signature of this digest; InputError if there are none."""
        with self._transaction():
            self._known(job)
            saved = {signed: sums for signed, _, sums in self._signed(job, round)}
        why = "none are saved for this round and this set of contributors"
        return bytes(needed("the sums of a signature", saved.get(digest), why))

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

    def close_all(self, spent: str) -> int:
        """Close all jobs, and make this file the one of its key from now on.

        Jobs that began after a backup, or that other records have, are not known here. Whoever
        runs the server must have ended them: else one of their rounds could be answered again,
        with fresh noise. Copies of the file, and other records of the key, are refused from now on.

        Parameters
        ----------
        spent
            by such jobs, as `carried_over` reads it; it is booked whatever the limits

        Returns
        -------
        int
            how many jobs were open

        Raises
        ------
        InputError
            If it cannot be read, or receipts show that more was spent: nothing is closed.
        """
        with self._transaction(check=False):
            if self.missing(spent):
                least = self.missing()
                raise InputError(f"{spent!r:.80} was spent, and receipts show at least {least}")
            jobs = self._db.rows("SELECT job FROM jobs WHERE closed IS NULL")
            for (job,) in jobs:
                self._close(job, "closed by the operator")
            for about in carried_over(spent):
                self._add(job := os.urandom(32).hex(), about)
                booked = "UPDATE jobs SET booked = ?, closed = 'carried over' WHERE job = ?"
                self._db.execute(booked, (time.time(), job))
            self._new_id()
            return len(jobs)

    @property
    def unfinished(self) -> int:
        """Number of jobs that are neither finished, expired nor closed."""
        ((number,),) = self._db.rows("SELECT COUNT(*) FROM jobs WHERE closed IS NULL")
        return int(number)

    def booked(self) -> tuple[Booked, ...]:
        """All jobs that were charged, oldest first."""
        names = ", ".join(f"jobs.{name}" for name in ("job", *FACTS, "booked", "closed"))
        jobs: dict[str, Booked] = {}
        with self._lock:
            rows = self._db.rows(
                f"SELECT {names}, round FROM jobs LEFT JOIN answers USING (job)"
                " WHERE booked IS NOT NULL ORDER BY jobs.rowid, round"
            )
        for job, *facts, when, closed, round in rows:
            before = jobs[job].answered if job in jobs else ()
            rounds = before if round is None else (*before, round)
            jobs[job] = Booked(job, JobFacts(*facts), when, rounds, closed or "")
        return tuple(jobs.values())

    @property
    def limits(self) -> BudgetCaps | None:
        """Caps on the account of all charges; None = no cap."""
        ((epsilon, delta),) = self._db.rows("SELECT epsilon, delta FROM state")
        return None if epsilon is None else BudgetCaps(epsilon, delta)

    def _of_job(self, columns: str, job: str) -> list[tuple[Any, ...]]:
        return self._db.rows(f"SELECT {columns} FROM jobs WHERE job = ?", (job,))

    def _signed(self, job: str, round: int) -> list[tuple[Any, ...]]:
        return self._db.rows(
            "SELECT digest, signature, sums FROM signatures WHERE job = ? AND round = ?",
            (job, round),
        )

    def _known(self, job: str, about: JobFacts | None = None) -> bool:
        """Return whether the job is in the file; InputError if it is closed, expired or another.

        Without `about` it must be there.
        """
        stored, ended = about, None
        rows = self._of_job(", ".join((*FACTS, "closed")), job)
        for row in rows:
            stored, ended = JobFacts(*row[:-1]), row[-1]
            for name in () if about is None else _AGREED:
                same(f"{name} of job {job[:12]}", getattr(about, name), getattr(stored, name))
        stored = needed(f"job {job[:12]}", stored, "this site has not enrolled in it")
        if ended is not None or stored.expires <= time.time():
            raise InputError(f"job {job[:12]} is no longer answered: {ended or 'it has expired'}")
        return bool(rows)

    def _afford(self, job: str, about: JobFacts) -> None:
        """BudgetExceeded if the job's charge does not fit the limits."""
        if (limits := self.limits) is None or about.exact:
            return
        unit, costs = account([*self._charged(job), about])
        caps = (limits.epsilon, limits.delta)
        ledger.check_caps(f"{self._db.name}, unit {unit}", job[:12], costs[-1], costs[:-1], caps)

    def _add(self, job: str, about: JobFacts) -> None:
        """Write a new job down; the oldest of too many without an answer are closed, forgotten."""
        names = ("job", *FACTS, "used")
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


RECORDS = "records.sqlite"
"""The file in a site's folder."""

LIFETIME_S = 30 * 86400.0
"""Seconds in which a job must end, from when the site first hears of it."""


def records_in(folder: Path, limits: BudgetCaps | None = None) -> SiteRecords:
    """Open the records in a site's folder, by the files of its key that `prepare` wrote down."""
    count, before = count_files(folder)
    return SiteRecords(folder / RECORDS, limits=limits, count=count, count_before=before)


def records_of(site: Prepared) -> SiteRecords:
    """Return the site's records, within its policy's limits; expired ones are deleted.

    Raises InputError if they were put back from a backup, are not those of the site's key, or
    cannot be used; or as `check_answers`.
    """
    check_answers(site.folder)
    policy = site.policy
    limits = None if policy is None else BudgetCaps(policy.epsilon_total, policy.delta_total)
    records = records_in(site.folder, limits)
    try:
        records.expire(time.time())
    except BaseException:
        records.close()
        raise
    return records


def job_facts(fields: Mapping[str, Any], plan: noise_plan.Plan, server: str) -> JobFacts:
    """Return the facts to write down of a job.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    plan
        this site's own
    server
        name of the server, in words
    """
    names = ("unit", "trust", "adjacency", "epsilon", "delta", "rounds")
    own: dict[str, Any] = {name: getattr(plan, name) for name in names}
    own |= {"method": read(fields, "method", str), "mechanism": plan.mechanism.name}
    own["verified"] = OWN_NOISE if plan.model.noise_by == "client" else CLAIMED
    return JobFacts(**own, server=server, expires=time.time() + LIFETIME_S)


def answer_once(
    site: Prepared,
    fields: Mapping[str, Any],
    plan: noise_plan.Plan,
    request: Request,
    draw: Callable[[], Words],
) -> tuple[Words, bool]:
    """Return the words of a round, drawn now or kept since the question first came.

    Parameters
    ----------
    site
        whose records have them
    fields, plan
        of the job
    request
        that the site has agreed to
    draw
        computes the contribution, (length,); called at most once in the life of a round

    Returns
    -------
    tuple[Words, bool]
        (length,) and whether they had been sent before

    Raises
    ------
    InputError
        As `SiteRecords.answer`.
    """
    context = agreement.context_of(request)
    with records_of(site) as records:
        sent, again = records.answer(
            agreement.job_digest(fields, context.run),
            job_facts(fields, plan, site.server),
            request.round,
            request.digest,
            lambda: np.asarray(draw(), "<u8").tobytes(),
            asked_once=request.query.asked_once,
        )
    return np.frombuffer(sent, "<u8").astype(np.uint64), again


def afford(site: Prepared, fields: Mapping[str, Any], plan: noise_plan.Plan, run: str) -> None:
    """Refuse a run that could not be booked or answered now; as `SiteRecords.afford`."""
    with records_of(site) as records:
        records.afford(agreement.job_digest(fields, run), job_facts(fields, plan, site.server))


def check_booked(site: Prepared, fields: Mapping[str, Any], run: str) -> None:
    """InputError for the result of a job that this site did not book by an answer."""
    with records_of(site) as records:
        if not records.has_booked(agreement.job_digest(fields, run)):
            raise InputError("this site has not answered in the run of this result")


def finish(site: Prepared, fields: Mapping[str, Any], run: str, plan: noise_plan.Plan) -> None:
    """Delete keys and answers of a run whose result has come; it is not answered again.

    Beside the result stays a receipt: the job, and what it was charged.
    """
    charge = in_text(spent_in_all([job_facts(fields, plan, site.server)]))
    job = agreement.job_digest(fields, run)
    write_whole(site.folder / RECEIPTS.replace("*", run), f"{job} {charge}")
    with records_of(site) as records:
        records.finish(job)
