"""SQLite files that fedcal keeps books in: transactions that are on disk when they end."""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedcal.core.errors import InputError

_BUSY_SECONDS = 60.0  # wait for another process's transaction; each is a few milliseconds


class Database:
    """One SQLite file, or one in memory.

    Parameters
    ----------
    path
        The file, made if there is none; None = in memory.
    what
        What its messages call the file, such as ``ledger``.

    Raises
    ------
    InputError
        If the path is a directory or cannot be opened. So do all methods if the file cannot be
        used: one line.

    Notes
    -----
    It may be used from several threads, whose transactions follow one another; several processes
    may use the file, but not one connection over a fork. The file must lie on a disk whose locks
    work; many network file systems' do not.
    """

    def __init__(self, path: str | Path | None, what: str) -> None:
        self.name = f"{what} in memory" if path is None else f"{what} {path}"
        self._lock = threading.RLock()
        target = ":memory:" if path is None else os.path.abspath(path)
        try:
            # isolation_level None: transactions begin and end only where `transaction` says so
            self._connection = sqlite3.connect(
                target, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, ValueError) as error:
            raise InputError(f"{self.name} cannot be opened (a directory?): {error}") from None
        # one in memory may simply be forgotten
        self._finalizer = weakref.finalize(self, self._connection.close)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows that a statement gives."""
        return self._run(sql, values)[0]

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and return how many rows it changed."""
        return self._run(sql, values)[1]

    def _run(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        try:
            cursor = self._connection.execute(sql, values)
            return cursor.fetchall(), cursor.rowcount
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise InputError(f"{self.name} cannot be used: {error}") from None

    @property
    def changes(self) -> int:
        """Rows that were changed since the file was opened, by this process."""
        return self._connection.total_changes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only write lock on the file; commit to disk at the end, or leave no trace."""
        with self._lock:
            # A deleted journal is what commits: EXTRA syncs the folder after deleting it.
            self.execute("PRAGMA synchronous = EXTRA")
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self.execute("ROLLBACK")
                raise

    def is_new(self, application: int) -> bool:
        """Return whether the file is empty; InputError if it belongs to another application.

        Parameters
        ----------
        application
            SQLite's ``application_id``; `mark` writes it
        """
        ((tables,),) = self.rows("SELECT count(*) FROM sqlite_master")
        ((owner,),) = self.rows("PRAGMA application_id")
        if tables == owner == self.version == 0:
            return True
        strange = self.rows("SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index')")
        if owner != application or strange:
            raise InputError(
                f"{self.name} is a database of another application, or was changed: it has "
                "unexpected triggers or views"
            )
        return False

    @property
    def version(self) -> int:
        """Version of the tables, as `mark` wrote it."""
        ((version,),) = self.rows("PRAGMA user_version")
        return int(version)

    def mark(self, application: int, version: int) -> None:
        """Say what the file is, and which version of the tables it has."""
        self.execute(f"PRAGMA application_id = {application}")
        self.execute(f"PRAGMA user_version = {version}")

    def close(self) -> None:
        """Close the file; one in memory is gone. Closing twice is no error."""
        self._finalizer()
