"""Which records a key belongs to and how many transactions they have seen, in a small file.

A database that was put back from a backup, copied or made anew is sound by itself; that it is not
the one that was left can only be seen from outside. The file has the records' id, which is random,
and a number that goes up with each transaction; both stand in the database, too. So does the spent
budget: where the database is lost or put back, the file says how much must be booked again. It also
has the time at which the system last saw the database change (ctime), which no program that copies
files can set: it shows copies, and a database and a file that were put back together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedcal.core.errors import FedcalError, InputError
from fedcal.storage.atomic import posix_locks, reason

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
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as e:
            hint = "" if path is None else "; name a file that outlasts --state as --key-records"
            raise InputError(f"cannot write {self.path}: {e.strerror}{hint}") from None

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
            raise FedcalError(f"cannot write {self.path}: {reason(e)}") from None
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
            raise InputError(f"{self.path} is damaged") from None

    def _write(self, left: _Left) -> None:
        """In one write of less than a sector, so that it is there or not."""
        os.pwrite(self._file, " ".join(map(str, left)).ljust(_WIDTH).encode(), 0)
