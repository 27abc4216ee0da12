"""Paths as people give them, and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedcal.core.errors import FedcalError, InputError


def path_of(path: str | Path) -> Path:
    """Return a path with `~` expanded to the home folder where that is known."""
    return Path(os.path.expanduser(path))


def reason(error: OSError) -> str:
    """Why a file cannot be written; NumPy says only how much of an array was."""
    return error.strerror or f"{error} (is the disk full?)"


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
def whole_file(path: Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """Open a draft beside `path` for writing; it takes its place when the block succeeds.

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
    if path.is_dir():
        raise InputError(f"cannot write {path}: Is a directory")
    try:
        file = draft.open("wb")
    except OSError as e:
        raise InputError(f"cannot write {path}: {e.strerror}") from None
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
