"""Folders of result files: all of them or none."""

import contextlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fedcal
from fedcal.core.checks import FedcalError, InputError, reason, system_errors

_SUMMARIES = ("result.json", "compare.json", "study.json")
"""Files that are written last: with one of them a folder is complete."""

PAGE = "page.json"
"""An artifact's part of the report, as data; a folder without it is of one that rescores rows."""


def to_json(value: Any) -> str:
    """Strict JSON, two spaces; ValueError for NaN and infinity."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def write_folder(out: Path, write: Callable[[Path], None], stale: Iterable[str] = ()) -> None:
    """Put the files that `write` makes into the folder `out`: all, or what was there before.

    Files of an earlier run that this one does not make go: those whose name matches one of the
    patterns in `stale`. What else lies there stays.

    Everything is written to a hidden folder in `out` first and then moved file by file, so a
    full disk or an interrupt changes nothing. Who kills the process between two moves finds no
    `result.json` (or `compare.json`): it goes first and comes last.

    Raises FedcalError if a file cannot be written.
    """
    missing = [p for p in (out, *out.parents) if not p.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=out) as draft:
            new, old = Path(draft, "new"), Path(draft, "old")
            new.mkdir()
            old.mkdir()
            write(new)
            _swap(out, new, old, tuple(stale))
    except OSError as e:
        raise FedcalError(f"cannot write results to {out}: {reason(e)}") from None
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if nothing was written


def _swap(out: Path, new: Path, old: Path, stale: tuple[str, ...]) -> None:
    """Move the files of `new` into `out`, those they replace into `old`; undone on an error."""
    names = sorted((p.name for p in new.iterdir()), key=lambda name: name in _SUMMARIES)
    for name in names:
        if (out / name).is_dir():
            raise FedcalError(f"cannot write results to {out}: {name} in it is a folder")
    gone = {p.name for pattern in stale for p in out.glob(pattern) if not p.is_dir()} - {*names}
    there = [name for name in reversed(names) if (out / name).exists()] + sorted(gone)
    moves = [(out / n, old / n) for n in there] + [(new / n, out / n) for n in names]
    with contextlib.ExitStack() as undo:
        for source, target in moves:
            os.replace(source, target)
            undo.callback(os.replace, target, source)
        undo.pop_all()


def check_out(out: Path) -> None:
    """Refuse, before any work, a folder that cannot be written; nothing is left there."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file, not a folder")
    with system_errors(f"cannot write results to {out}"):
        there = next(p for p in (out, *out.parents) if p.exists())
        tempfile.TemporaryDirectory(prefix=".draft-", dir=there).cleanup()


def versions(*more: str) -> dict[str, str]:
    """Versions of what computed a result, of `more` packages, too."""
    packages = {"fedcal": fedcal.__version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "flwr", "dp-accounting", *more):
        try:
            packages[package] = version(package)
        except PackageNotFoundError:  # pragma: no branch
            packages[package] = "unknown"
    return packages
