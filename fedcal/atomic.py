"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedcal.errors import FedcalError, InputError


def reason(error: OSError) -> str:
    """Why a file cannot be written; NumPy says only how much of an array was."""
    return error.strerror or f"{error} (is the disk full?)"


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a draft beside `path` for writing; it takes its place when the block succeeds.

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
        os.replace(draft, path)
    except OSError as e:
        raise FedcalError(f"cannot write {path}: {reason(e)}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
