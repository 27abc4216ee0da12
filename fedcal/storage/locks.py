"""Files that one process holds at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fedcal.core.errors import InputError


@contextlib.contextmanager
def locked(path: Path, taken: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file, which is made if it is not there, until the block ends or the process.

    Parameters
    ----------
    path
        of the file, on a disk whose locks work; many network file systems' do not
    taken
        what is said if another process holds it
    wait
        until that one lets go

    Raises
    ------
    InputError
        If another process holds it and nobody waits, or the file cannot be written.
    """
    import fcntl  # not on Windows, where all else of fedcal can be imported

    try:
        file = path.open("w")
    except OSError as e:
        raise InputError(f"cannot write {path.parent}: {e.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            raise InputError(taken) from None
        yield
