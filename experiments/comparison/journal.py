"""The folder of a comparison while it grows: `config.toml`, and `rows.jsonl` row by row."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from experiments.comparison.grid import Grid, read_grid
from experiments.comparison.row import Row, check_row, key_of
from experiments.config import read_toml
from fedcal.atomic import whole_file
from fedcal.errors import FedcalError, InputError

CONFIG, ROWS, DONE = "config.toml", "rows.jsonl", "compare.json"
"""The grid; a line for each finished run; the summary, which is there when all are finished."""

FINAL = (DONE, "table.csv", "table.md", "report.html")
"""What a finished comparison leaves beside its grid and rows."""


def grid_in(folder: Path) -> Grid:
    """The grid of the comparison that a folder holds.

    Raises
    ------
    InputError
        If there is none.
    """
    if not (folder / CONFIG).is_file() or not (folder / ROWS).is_file():
        raise InputError(f"nothing to resume in {folder}; start without --resume")
    return read_grid(read_toml(folder / CONFIG))


def _check_new(folder: Path) -> None:
    """Refuse a folder whose rows a new comparison must not replace."""
    if (folder / ROWS).exists() and not (folder / DONE).exists():
        kept = (folder / ROWS).read_bytes().count(b"\n")
        if kept:
            raise InputError(
                f"{folder} holds an unfinished comparison ({kept} runs are kept): go on with "
                "--resume, or choose another --out"
            )


@contextlib.contextmanager
def journal(
    folder: Path, grid: Grid, *, resume: bool, check: Callable[[Mapping[str, Row]], None]
) -> Iterator[Journal]:
    """The open journal of a folder that no other comparison writes to meanwhile.

    Parameters
    ----------
    folder : made if there is none; what a finished comparison left there is removed
    grid : written to `config.toml`
    resume : whether rows that are there are kept. A last line that was torn, by a crash or a full
        disk, is cut off
    check : gets them before anything is changed, and refuses those that do not belong here

    Raises
    ------
    InputError
        The folder is in use; or it holds rows that a new comparison must not replace; or, to
        resume, a grid that is not part of this one, a line that is no row, a run that is there
        twice.
    FedcalError
        The files cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise FedcalError(f"cannot write to {folder}: {e.strerror}") from None
    with _locked(folder):
        rows: dict[str, Row] = {}
        length = 0
        if not resume:
            _check_new(folder)
        elif differs := grid.what_differs(grid_in(folder)):
            raise InputError(f"{folder} was begun with another grid: {'; '.join(differs)}")
        else:
            rows, length = _read(folder / ROWS)
            check(rows)
        for name in FINAL:
            (folder / name).unlink(missing_ok=True)
        with whole_file(folder / CONFIG) as f:
            f.write(grid.to_toml().encode())
        kept = Journal(folder, rows, length)
        try:
            yield kept
        finally:
            kept.close()


class Journal:
    """`rows.jsonl`, open for appending after its first `length` bytes.

    Attributes
    ----------
    folder : where it is
    rows : finished runs by `key_of`
    """

    def __init__(self, folder: Path, rows: dict[str, Row], length: int) -> None:
        self.folder, self.rows = folder, rows
        try:
            self._file = (folder / ROWS).open("ab", buffering=0)
            self._file.truncate(length)
        except OSError as e:
            raise FedcalError(f"cannot write {folder / ROWS}: {e.strerror}") from None

    def append(self, key: str, row: Row) -> None:
        """Keep a finished run: it is on the disk when this returns."""
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):  # a disk that is just full takes a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as e:
            raise FedcalError(f"cannot write {self.folder / ROWS}: {e.strerror}") from None
        self.rows[key] = row

    def count(self) -> int:
        """Rows in the file; after an interrupt `rows` may lack the last one."""
        return (self.folder / ROWS).read_bytes().count(b"\n")

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._file.close()


def _read(path: Path) -> tuple[dict[str, Row], int]:
    """The rows of a file by `key_of`, and the bytes that they fill: all but a torn last line."""
    rows: dict[str, Row] = {}
    length = 0
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            row = check_row(json.loads(line))
        except (ValueError, RecursionError):
            raise InputError(f"{path}, line {number} is not a row") from None
        key = key_of(row["run"])
        if key in rows:
            raise InputError(f"{path}, line {number}: this run is there twice")
        rows[key] = row
        length += len(line)
    return rows, length


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep a second comparison out of the folder, where the system has locks.

    Raises
    ------
    InputError
        If another process is at work in it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(f"another comparison is writing to {folder}") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(handle)
