"""The file of a site's records: transactions on it, and whether it is the one of the site's key."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

from fedcal.clients.site.records.job_facts import JobFacts, carried_over, in_text, spent_in_all
from fedcal.core import checks, errors
from fedcal.core.errors import reason
from fedcal.storage.atomic import posix_locks
from fedcal.storage.database import Database

PUT_BACK = (
    "seem to be restored from a backup: no request is answered until `fedcal site restored` is "
    "called"
)

FACTS = tuple(field.name for field in fields(JobFacts))
"""Columns of a job's facts."""

RECEIPTS = "results/*/receipt"
"""Files beside the results that a site has kept, seen from its records: a job, and its charge."""

_APPLICATION, _VERSION = 0x6663_7372, 2  # "fcsr" in SQLite's application_id; 1 had no id

_TABLES = (
    "CREATE TABLE state (transactions INTEGER NOT NULL, epsilon REAL, delta REAL,"
    " id TEXT NOT NULL DEFAULT '')",
    "INSERT INTO state (transactions) VALUES (0)",
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


class RecordsFile:
    """Transactions that are on the disk when they end, on the one file that belongs to a key.

    Parameters
    ----------
    path
        the database, made if it is not there; None = in memory
    count
        the key's `CountFile`; None = beside the database
    count_before
        the one that was used until now: a key that has none yet takes over the records that
        agree with it. None = beside the database
    """

    def __init__(
        self, path: Path | None, count: Path | None = None, count_before: Path | None = None
    ) -> None:
        self._lock, self._inside = threading.RLock(), False
        self._path, self._keyed, self._cut_off = path, count is not None, False
        if path is not None:
            _make_private(path)
        self._db = Database(path, "records")
        self._count = None if path is None else CountFile(path, count)
        try:
            with self._held():
                # the file changes in commits alone: `CountFile` looks at when it did
                for pragma in ("secure_delete = ON", "cache_spill = OFF"):
                    self._db.rows(f"PRAGMA {pragma}")
                with self._db.transaction():
                    self._open()
                if self._count is not None:
                    self._bind(self._count, count_before)
        except BaseException:
            self.close()
            raise

    @property
    def restored(self) -> bool:
        """True if the file is not the one that the key has: nothing is answered."""
        return self.refusal != ""

    @property
    def refusal(self) -> str:
        """The reason why nothing is answered, to follow the file's name; "" = there is none."""
        with self._lock, self._held():
            return self._refusal()

    @property
    def foreign(self) -> bool:
        """True if the key has other records than these."""
        if self._count is None or not self._keyed:
            return False
        return self._count.records not in (UNNAMED, self._id)

    def _refusal(self) -> str:
        if self._count is None or self._agrees(self._count):
            return ""
        if not self.foreign:
            return PUT_BACK
        return (
            f"have the id {self._id[:12]}, and {self._count.path}, the file of this site's key, is "
            f"of records {self._count.records[:12]}: use the folder with those, or enter with "
            "`fedcal site restored --spent` what they have spent"
        )

    def _agrees(self, file: CountFile) -> bool:
        return file.agrees(self._transactions, self._id, cut_off=self._cut_off)

    @property
    def _id(self) -> str:
        if self._db.version < _VERSION:
            return UNNAMED
        ((records,),) = self._db.rows("SELECT id FROM state")
        return str(records)

    @property
    def _transactions(self) -> int:
        ((number,),) = self._db.rows("SELECT transactions FROM state")
        return int(number)

    @contextmanager
    def _held(self) -> Iterator[None]:
        if self._count is None or self._path is None:
            yield
            return
        with self._count.held():
            journal = Path(f"{self._path}-journal")  # nobody else is in a transaction now
            self._cut_off = journal.exists() and journal.stat().st_size > 0
            yield

    def _open(self) -> None:
        """Make the tables, or see that they are there. Within a transaction."""
        if self._db.is_new(_APPLICATION):
            for table in _TABLES:
                self._db.execute(table)
            self._db.mark(_APPLICATION, _VERSION)
            self._new_id()
        if self._db.version != 1:
            checks.same(f"version of {self._db.name}", self._db.version, _VERSION)

    def _charged(self, job: str = "") -> list[JobFacts]:
        """Return what was charged for all jobs but this one; exact sums are not in it."""
        rows = self._db.rows(
            f"SELECT {', '.join(FACTS)} FROM jobs"
            " WHERE booked IS NOT NULL AND epsilon < ? AND job != ?",
            (math.inf, job),
        )
        return [JobFacts(*facts) for facts in rows]

    @property
    def _spent(self) -> str:
        return in_text(spent_in_all(self._charged()))

    def missing(self, spent: str = "nothing") -> str:
        """Return the charges that are not in these records, nor in `spent`; "" = there are none.

        They are shown by the file of the site's key, and by receipts of results at hand. All are
        written as `carried_over` reads them.
        """
        booked, paths = self._charged(), self._path.parent.glob(RECEIPTS) if self._path else ()
        receipts = dict(path.read_text("ascii").split(" ", 1) for path in paths)
        jobs = {job for (job,) in self._db.rows("SELECT job FROM jobs WHERE booked IS NOT NULL")}
        lost = [carried_over(charge) for job, charge in receipts.items() if job not in jobs]
        left = "nothing" if self._count is None else self._count.spent
        known = (*booked, *carried_over(spent))
        shown = carried_over(left), (*booked, *chain.from_iterable(lost))
        more = [one for charges in shown if (one := spent_in_all(charges, known))]
        return in_text(max(more, key=lambda one: one[1])) if more else ""

    def _new_id(self) -> None:
        self._db.execute("UPDATE state SET id = ?", (os.urandom(16).hex(),))

    def _bind(self, count: CountFile, before: Path | None) -> None:
        """Tie the file to the key's count file, if it is the right one; give it an id."""
        agrees = self._agrees(count) or self._follows(before)
        if self._db.version == 1:
            with self._db.transaction():
                if agrees:
                    self._number(count)
                self._db.execute("ALTER TABLE state ADD COLUMN id TEXT NOT NULL DEFAULT ''")
                self._db.mark(_APPLICATION, _VERSION)
                self._new_id()
        if agrees:
            count.committed(self._transactions, self._id, self._spent)

    def _follows(self, before: Path | None) -> bool:
        """Return whether the key has no records yet, and these are as the file before left them."""
        if self._path is None or self._count is None or self.foreign:
            return False
        path = before or self._path.with_suffix(".count")
        if path == self._count.path or not path.exists():
            return False
        file = CountFile(self._path, path)
        try:
            return self._agrees(file)
        finally:
            file.close()

    def _number(self, count: CountFile | None) -> int:
        """Give the current transaction its number, in both files."""
        number = self._transactions + 1
        if count is not None:
            number = count.next(number - 1, self._id, self._spent)
        self._db.execute("UPDATE state SET transactions = ?", (number,))
        return number

    @contextmanager
    def _transaction(self, *, check: bool = True) -> Iterator[None]:
        """All of it or nothing is on the disk at the end; a file not the key's is refused."""
        with self._lock:
            if self._inside:  # what is drawn may read the private key
                yield
                return
            with self._held():
                with self._db.transaction():
                    if check and (why := self._refusal()):
                        raise errors.InputError(f"{self._db.name} {why}")
                    before, self._inside = self._db.changes, True
                    try:
                        yield
                    finally:
                        self._inside = False
                    if changed := self._db.changes > before:
                        number = self._number(self._count)
                if changed and self._count is not None:
                    self._count.committed(number, self._id, self._spent)

    def close(self) -> None:
        """Close the file; records in memory are gone. Closing twice is no error."""
        self._db.close()
        if self._count is not None:
            self._count.close()
            self._count = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _make_private(path: Path) -> None:
    """Make the file, if it is not there, so that only this user can read and write it."""
    # one that is there is left alone: to close it again would drop SQLite's locks of this process
    with errors.system_errors(f"cannot write {path}"), suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


UNNAMED = "-"
"""Id of records of earlier versions of fedcal, which had none, and of no records."""

_WIDTH = 256
_COMMITTING = 0  # in place of the time: a transaction is being committed, or was when it all ended


class _Left(NamedTuple):
    """State of a database after its last use: number, time, time before the commit, id, budget."""

    number: int
    changed: int
    before: int
    records: str
    spent: str = "nothing"


class CountFile:
    """The file, and the lock that all transactions on the database take first.

    Parameters
    ----------
    database
        its path
    path
        of this file, made with mode 0600 if it is not there; None = beside the database, with the
        suffix ``.count``

    Raises
    ------
    InputError
        If it cannot be made.
    """

    def __init__(self, database: Path, path: Path | None = None) -> None:
        self._database = database
        self.path = path or database.with_suffix(".count")
        hint = "" if path is None else " (name a file that outlasts --state as --key-records)"
        with errors.system_errors(f"cannot write {self.path}{hint}"):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the file against other openers, in this process and others."""
        fcntl = posix_locks(self.path)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @property
    def records(self) -> str:
        """Id of the records that were left here, or `UNNAMED`."""
        return self._read().records

    @property
    def spent(self) -> str:
        """Budget that these records have spent, as `carried_over` reads it."""
        return self._read().spent

    def agrees(self, count: int, records: str, *, cut_off: bool) -> bool:
        """Return whether a database is the one that was left here.

        Parameters
        ----------
        count
            its number of transactions
        records
            its id, or `UNNAMED`
        cut_off
            whether SQLite's journal says that a process ended in mid-transaction

        Notes
        -----
        After a death in a transaction nobody wrote down when the database last changed. If it has
        the transaction, no earlier copy has. If not, nothing was written to it since the time
        before, or a journal is there by which SQLite takes back what was. A copy that was put back
        has neither, unless it was made in mid-transaction, or put beside that very journal.
        """
        left = self._read()
        if left.records not in (UNNAMED, records):
            return False
        if left.changed == _COMMITTING and count != left.number:
            undone = cut_off or left.before == self._changed()
            return count == left.number - 1 and undone
        return count == left.number and left.changed in (_COMMITTING, self._changed())

    def next(self, count: int, records: str, spent: str) -> int:
        """Return the number after `count` and after all in this file; it is then on disk.

        To be called before the transaction is committed, and `committed` afterwards.

        Raises FedcalError if it cannot be written: then the transaction must not be committed.
        """
        number = max(count, self._read().number) + 1
        try:
            self._write(_Left(number, _COMMITTING, self._changed(), records, spent))
            os.fsync(self._file)
        except OSError as e:
            raise errors.FedcalError(f"cannot write {self.path}: {reason(e)}") from None
        return number

    def committed(self, count: int, records: str, spent: str) -> None:
        """Remember how the database was left; a crash before this is no restored backup."""
        self._write(_Left(count, self._changed(), 0, records, spent))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _changed(self) -> int:
        return os.stat(self._database).st_ctime_ns

    def _read(self) -> _Left:
        """Return the stored state; an empty file means no transaction."""
        words = os.pread(self._file, _WIDTH, 0).decode("ascii", "replace").split()
        try:
            if len(words) not in (0, 2, 4, 5):  # earlier versions wrote the first two, or four
                raise ValueError
            number, changed, before, *_ = (*map(int, words[:3]), 0, 0, 0)
            return _Left(number, changed, before, *(words[3:] or (UNNAMED,)))
        except ValueError:
            raise errors.InputError(f"{self.path} is damaged") from None

    def _write(self, left: _Left) -> None:
        """In one write of less than a sector, so that it is there or not."""
        os.pwrite(self._file, " ".join(map(str, left)).ljust(_WIDTH).encode(), 0)
