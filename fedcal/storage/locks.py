"""Files and folders that one process holds at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from fedcal.core.errors import InputError


def posix_locks(path: Path) -> ModuleType:
    """`fcntl`; or InputError on Windows, where all else of fedcal can be imported."""
    try:
        import fcntl
    except ImportError:
        raise InputError(
            f"{path} needs a lock (fcntl), which Linux and macOS have; this system does not"
        ) from None
    return fcntl


@contextlib.contextmanager
def locked(path: Path, taken: str, *, wait: bool = False, folder: bool = False) -> Iterator[None]:
    """Hold a folder, or a lock file (made if not there), until the block or the process ends.

    Raises InputError if another process holds it and nobody waits, the file cannot be written, or
    the system has no locks.

    Parameters
    ----------
    path
        on a disk whose locks work; many network file systems' do not
    taken
        what is said if another process holds it
    wait
        until that one lets go
    folder
        the path is a folder; it is not held where the system, or its file system, has no locks
    """
    try:
        fcntl = posix_locks(path)
    except InputError:
        if not folder:
            raise
        yield
        return
    try:
        handle = os.open(path, os.O_RDONLY if folder else os.O_WRONLY | os.O_CREAT, 0o666)
    except OSError as e:
        raise InputError(f"cannot write {path.parent}: {e.strerror}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as e:
            if not folder or isinstance(e, BlockingIOError):
                raise InputError(taken) from None
        yield
    finally:
        os.close(handle)
