"""Paths as people give them, files that appear whole or not at all, and files that are held."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

from fedcal.core.checks import FedcalError, InputError, reason, system_errors


def path_of(path: str | Path) -> Path:
    """Return a path with `~` expanded to the home folder where that is known."""
    return Path(os.path.expanduser(path))


def must_exist(path: Path, otherwise: str) -> Path:
    """Return a path; InputError, with what to do, if nothing is there."""
    if not path.exists():
        raise InputError(f"{path} is not there: {otherwise}")
    return path


def must_not_exist(path: Path, otherwise: str) -> None:
    """InputError, with what to do, if something is there."""
    if path.exists():
        raise InputError(f"{path} is there: {otherwise}")


def sync_folder(folder: Path) -> None:
    """Return once what was made, renamed or removed in a folder outlasts a power failure."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folder
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """Open a draft beside `path` for writing; it takes its place when the block succeeds.

    Who may read a file that is there may read the new one, and nobody else.

    Parameters
    ----------
    path
        of the file
    durable
        return only once it outlasts a power failure

    Raises
    ------
    InputError
        If nothing can be written there.
    FedcalError
        If writing fails half way; what was at `path` is then still there.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    with system_errors(f"cannot write {path}"):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        file = draft.open("wb")
        draft.chmod((path if path.exists() else draft).stat().st_mode)
    try:
        with file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
        if durable:
            sync_folder(path.parent)
    except OSError as e:
        raise FedcalError(f"cannot write {path}: {reason(e)}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def write_file(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file; the whole file or what was there before (see `atomic_file`)."""
    with atomic_file(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


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
    with system_errors(f"cannot write {path.parent}"):
        handle = os.open(path, os.O_RDONLY if folder else os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as e:
            if not folder or isinstance(e, BlockingIOError):
                raise InputError(taken) from None
        yield
    finally:
        os.close(handle)
