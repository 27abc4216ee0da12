"""SQLite files that fedcal keeps books in: transactions that are on disk when they end."""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from fedcal.core.checks import InputError

_BUSY_SECONDS = 60.0  # wait for another process's transaction; each is a few milliseconds


class Database(AbstractContextManager[Any]):
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

    def make(self, application: int, version: int, tables: Sequence[str]) -> int:
        """Return the version of the file's tables; 0 = it was empty and has them from now on.

        To be called within a transaction.

        Parameters
        ----------
        application
            SQLite's ``application_id``: InputError if the file has another one
        version
            of the tables that are made
        tables
            statements that make them
        """
        ((made,),) = self.rows("SELECT count(*) FROM sqlite_master")
        ((owner,),) = self.rows("PRAGMA application_id")
        ((stored,),) = self.rows("PRAGMA user_version")
        if made == owner == stored == 0:
            marks = f"PRAGMA application_id = {application}", f"PRAGMA user_version = {version}"
            for statement in (*tables, *marks):
                self.execute(statement)
            return 0
        strange = self.rows("SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index')")
        if owner != application or not stored or strange:
            raise InputError(
                f"{self.name} is a database of another application, or was changed: it has "
                "unexpected triggers or views"
            )
        return int(stored)

    def close(self) -> None:
        """Close the file; one in memory is gone. Closing twice is no error."""
        self._finalizer()

    def __exit__(self, *error: object) -> None:
        self.close()
