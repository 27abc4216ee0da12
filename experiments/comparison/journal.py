"""The folder of a comparison while it grows: `config.toml`, and `rows.jsonl` row by row.

A folder that holds a finished comparison stays as it is until the next one, or the same one grown,
is saved: until then that one lies in the hidden folder `.unfinished` in it.

`.inputs.json` says what data the rows were made of, so that others do not get among them. It is
for `--resume` alone, only its owner may read it, and it is not to be published: who knows all rows
of a data set but one can find the last one by its digest.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from fedcal.atomic import whole_file
from fedcal.errors import FedcalError, InputError
from fedcal.experiments.comparison.grid import read_grid
from fedcal.experiments.comparison.row import Row, check_row, key_of
from fedcal.experiments.config import read_toml
from fedcal.experiments.figures import COMPARISON_NAMES

CONFIG, ROWS, DONE = "config.toml", "rows.jsonl", "compare.json"
"""The grid; a line for each finished run; the summary, which is there when all are finished."""

INPUTS, UNFINISHED = ".inputs.json", ".unfinished"
"""Digests of the data by name, not to be published; where work goes on in a finished folder."""

FINAL = (DONE, "table.csv", "table.md", "report.html")
"""What a finished comparison leaves beside its grid and rows."""

Digests = Mapping[str, str]
"""Name of a data set -> its `digest_of`."""


class Plan(Protocol):
    """What is to be run: a `Grid`, or the like."""

    @property
    def data(self) -> tuple[str, ...]:
        """Names of its data sets."""

    def to_toml(self) -> str:
        """The file from which `Kind.read` makes it again."""

    def what_differs(self, then: Any) -> list[str]:
        """Why what was begun with `then` is not a part of this one; [] if it is."""


@dataclass(frozen=True)
class Kind:
    """What a folder holds.

    Attributes
    ----------
    read : content of `config.toml` -> plan
    check : a row that was read, or ValueError
    done : the file that is there when all runs are finished
    """

    read: Callable[[Mapping[str, Any]], Any]
    check: Callable[[Any], Row]
    done: str


COMPARISON = Kind(read_grid, check_row, DONE)


def grid_in(folder: Path, kind: Kind = COMPARISON) -> Any:
    """The grid of the comparison that was last begun in a folder.

    Raises
    ------
    InputError
        If there is none.
    """
    begun = _begun(folder)
    if not (begun / CONFIG).is_file() or not (begun / ROWS).is_file():
        raise InputError(f"nothing to resume in {folder}; start without --resume")
    return kind.read(read_toml(begun / CONFIG))


def _begun(folder: Path) -> Path:
    """Where the files of the comparison are that was last begun in a folder."""
    hidden = folder / UNFINISHED
    return hidden if (hidden / ROWS).exists() else folder


def _check_names(folder: Path) -> None:
    """Refuse, before any run, a folder where files cannot be written in the end."""
    for pattern in (CONFIG, ROWS, INPUTS, *FINAL, *COMPARISON_NAMES):
        for path in folder.glob(pattern):
            if path.is_dir():
                raise InputError(f"cannot write results to {folder}: {path.name} in it is a folder")


def _check_new(folder: Path, done: str) -> None:
    """Refuse a folder whose rows a new comparison must not replace."""
    begun = _begun(folder)
    if begun == folder and ((folder / done).exists() or not (folder / ROWS).exists()):
        return
    if kept := len(_lines(begun / ROWS)):
        raise InputError(
            f"{folder} holds an unfinished comparison ({kept} runs are kept): go on with "
            "--resume, or choose another --out"
        )


@contextlib.contextmanager
def journal(
    folder: Path,
    grid: Plan,
    inputs: Digests,
    *,
    resume: bool,
    check: Callable[[Mapping[str, Row]], None],
    kind: Kind = COMPARISON,
) -> Iterator[Journal]:
    """The open journal of a folder that no other comparison writes to meanwhile.

    Parameters
    ----------
    folder : made if there is none. What a finished comparison left there stays until
        `Journal.finish`
    grid : written to `config.toml`
    inputs : digests of all data, written to `.inputs.json`
    resume : whether rows that are there are kept. Those that failed are not, nor is a last line
        that was torn, by a crash or a full disk
    check : gets them before anything is changed, and refuses those that do not belong here
    kind : what the folder holds

    Raises
    ------
    InputError
        The folder is in use; or it holds rows that a new comparison must not replace; or, to
        resume, a grid that is not part of this one, other data, a line that is no row, a run that
        is there twice.
    FedcalError
        The files cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise FedcalError(f"cannot write to {folder}: {e.strerror}") from None
    with _locked(folder):
        _check_names(folder)
        rows: dict[str, Row] = {}
        begun = _begun(folder)
        if not resume:
            _check_new(folder, kind.done)
        elif differs := grid.what_differs(then := grid_in(folder, kind)):
            raise InputError(f"{folder} was begun with another grid: {'; '.join(differs)}")
        else:
            rows = _read(begun / ROWS, kind)
            _check_inputs(begun / INPUTS, {name: inputs[name] for name in then.data})
            check(rows)
        rows = {key: row for key, row in rows.items() if "error" not in row}
        kept = Journal(folder, begun if begun != folder else _place(folder, kind), rows, inputs)
        kept.begin(grid)
        try:
            yield kept
        finally:
            kept.close()


def _place(folder: Path, kind: Kind) -> Path:
    """Where the files of the next comparison lie until it is saved."""
    return folder / UNFINISHED if (folder / kind.done).exists() else folder


class Journal:
    """A growing `rows.jsonl`, and what lies beside it.

    Attributes
    ----------
    folder : of the comparison
    rows : finished runs by `key_of`
    """

    def __init__(self, folder: Path, place: Path, rows: dict[str, Row], inputs: Digests) -> None:
        self.folder, self.rows, self._inputs = folder, rows, inputs
        self._place, self._path = place, place / ROWS

    def begin(self, grid: Plan) -> None:
        """Write all that is known before the first run; `rows.jsonl`, by which it is found, last.

        Raises
        ------
        FedcalError
            If the files cannot be written.
        """
        try:
            self._place.mkdir(exist_ok=True)
            self._write_inputs(self._place)
            with whole_file(self._place / CONFIG) as f:
                f.write(grid.to_toml().encode())
            with whole_file(self._path) as f:
                f.writelines(_line(row) for row in self.rows.values())
            self._file = self._path.open("ab", buffering=0)
        except OSError as e:
            self._cannot_write(e)

    def append(self, key: str, row: Row) -> None:
        """Keep a finished run: it is on the disk when this returns."""
        line = _line(row)
        try:
            if self._file.write(line) != len(line):  # a disk that is just full takes a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as e:
            self._cannot_write(e)
        self.rows[key] = row

    def count(self) -> int:
        """Rows in the file; after an interrupt `rows` may lack the last one."""
        return len(_lines(self._path)) if self._path.exists() else len(self.rows)

    def finish(self, save: Callable[[Path], None]) -> None:
        """Let `save` write the finished comparison to the folder, and leave nothing else there."""
        self.close()  # its file is replaced by one in the order of the table
        save(self.folder)
        if self._place == self.folder:
            return
        try:
            self._write_inputs(self.folder)
            self._path.unlink()  # nothing is unfinished from now on
        except OSError as e:
            self._cannot_write(e)
        shutil.rmtree(self._place, ignore_errors=True)

    def _write_inputs(self, folder: Path) -> None:
        with whole_file(folder / INPUTS) as f:
            os.chmod(f.name, 0o600)
            f.write(json.dumps({"data": dict(self._inputs)}).encode())

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _cannot_write(self, error: OSError) -> NoReturn:
        raise FedcalError(f"cannot write {self._path}: {error.strerror}") from None


def _line(row: Row) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _lines(path: Path) -> list[bytes]:
    """The whole lines of a file, without a torn last one."""
    try:
        listed = path.read_bytes().split(b"\n")
    except OSError as e:
        raise InputError(f"cannot read {path}: {e.strerror}") from None
    return listed[:-1]


def _read(path: Path, kind: Kind) -> dict[str, Row]:
    """The rows of a file by `key_of`."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(_lines(path), 1):
        try:
            row = kind.check(json.loads(line, parse_constant=_refuse))
            key = key_of(row["run"])
        except (ValueError, RecursionError):
            raise InputError(f"{path}, line {number} is not a row") from None
        if key in rows:
            raise InputError(f"{path}, line {number}: this run is there twice")
        rows[key] = row
    return rows


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _check_inputs(path: Path, inputs: Digests) -> None:
    """Refuse to go on with other data than those of the rows that are there."""
    anew = "start anew, with another --out"
    try:
        then = json.loads(path.read_bytes())["data"]
        changed = [name for name, digest in inputs.items() if then[name] != digest]
    except FileNotFoundError:
        raise InputError(f"{path} is missing, which tells whose rows these are; {anew}") from None
    except OSError as e:
        raise InputError(f"cannot read {path}: {e.strerror}") from None
    except (ValueError, RecursionError, TypeError, LookupError):
        raise InputError(f"{path} is damaged, which tells whose rows these are; {anew}") from None
    if changed:
        raise InputError(f"{', '.join(changed)} changed since this comparison was begun; {anew}")


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
