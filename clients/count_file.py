"""How many transactions a database has seen, in a small file beside it.

A database that was put back from a backup is sound by itself; that it is an old one can only be
seen from outside. The number goes up with each transaction, in the database and in this file. The
file also has the time at which the system last saw the database change (ctime), which no program
that copies files can set: it shows that both were put back together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcal.atomic import reason
from fedcal.errors import FedcalError, InputError

_WIDTH = 48
_COMMITTING = 0  # in place of the time: a transaction is being committed, or was when it all ended


class CountFile:
    """The file, and the lock that all transactions on the database take first.

    Parameters
    ----------
    database
        its path; this file has the suffix ``.count``

    Raises
    ------
    InputError
        If it cannot be made.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        path = database.with_suffix(".count")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise InputError(f"cannot write {path}: {e.strerror}") from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Whoever else opened it, in this process or another, waits meanwhile."""
        import fcntl  # not on Windows, where all else of fedcal can be imported

        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def agrees(self, count: int) -> bool:
        """Whether a database with `count` transactions is the one that was left here."""
        known, changed = self._read()
        if changed == _COMMITTING:  # nobody knows whether that transaction came to be
            return count in (known - 1, known)
        return count == known and changed == self._changed()

    def next(self, count: int) -> int:
        """The number after `count` and after all that this file has seen; on disk on return.

        To be called before the transaction is committed, and `committed` afterwards.

        Raises
        ------
        FedcalError
            If it cannot be written: then the transaction must not be committed.
        """
        number = max(count, self._read()[0]) + 1
        try:
            self._write(number, _COMMITTING)
            os.fsync(self._file)
        except OSError as e:
            raise FedcalError(f"cannot write {self._database}: {reason(e)}") from None
        return number

    def committed(self, count: int) -> None:
        """Remember how the database was left; a crash before this is no restored backup."""
        self._write(count, self._changed())

    def close(self) -> None:
        """Let it go."""
        os.close(self._file)

    def _changed(self) -> int:
        return os.stat(self._database).st_ctime_ns

    def _read(self) -> tuple[int, int]:
        """Number and time; of an empty file those of a database without a transaction."""
        try:
            known, changed = os.pread(self._file, _WIDTH, 0).split() or (b"0", b"0")
            return int(known), int(changed)
        except ValueError:
            raise InputError(f"the file beside {self._database} is damaged") from None

    def _write(self, count: int, changed: int) -> None:
        os.pwrite(self._file, f"{count} {changed}".ljust(_WIDTH).encode(), 0)
