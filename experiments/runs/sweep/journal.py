"""The folder of many runs while it grows: `config.toml`, and `rows.jsonl` row by row.

A folder that holds finished runs stays as it is until the next ones, or the same ones grown,
are saved: until then those lie in the hidden folder `.unfinished` in it.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fedcal.core.errors import FedcalError, InputError
from fedcal.experiments.runs.config import read_options
from fedcal.experiments.runs.sweep.pools import Row, key_of
from fedcal.storage.atomic import locked, whole_file

CONFIG, ROWS = "config.toml", "rows.jsonl"
"""What is run; a line for each finished run."""

INPUTS, UNFINISHED = ".inputs.json", ".unfinished"
"""Digests of the data by name, not to be published; where work goes on in a finished folder."""


@dataclass(frozen=True)
class Folder:
    """Folder of runs, and its expected content.

    Attributes
    ----------
    path
        made if there is none
    config
        text of `config.toml`
    what_differs
        content of the `config.toml` of what was begun -> why its runs are no part of
        these; empty = they are
    check
        returns a row that was read, or raises ValueError
    done
        the file that is there when all runs are finished
    files
        names, or patterns, of what else lies there when they are
    overwrite
        begin anew where something is unfinished
    """

    path: Path
    config: str
    what_differs: Callable[[Mapping[str, Any]], Sequence[str]]
    check: Callable[[Any], Row]
    done: str
    files: Sequence[str] = ()
    overwrite: bool = False


def begun_config(path: Path) -> dict[str, Any]:
    """Return the `config.toml` of the sweep that was last begun in a folder.

    Raises InputError if there is nothing.
    """
    place = _begun(path)
    if not (place / CONFIG).is_file() or not (place / ROWS).is_file():
        raise InputError(f"nothing to resume in {path}; start without --resume")
    return read_options(place / CONFIG)


def kept_runs(path: Path, done: str) -> int:
    """Return the number of finished runs in an unfinished sweep's folder."""
    place = _begun(path)
    finished = place == path and (path / done).exists()
    return 0 if finished or not (place / ROWS).is_file() else len(_lines(place / ROWS))


def _begun(path: Path) -> Path:
    """Return the place of the files of the sweep last begun in a folder."""
    hidden = path / UNFINISHED
    return hidden if (hidden / ROWS).exists() else path


@contextlib.contextmanager
def _writing(what: str) -> Iterator[None]:
    """Turn OSError into a FedcalError that names what cannot be written."""
    try:
        yield
    except OSError as e:
        raise FedcalError(f"cannot write {what}: {e.strerror}") from None


@contextlib.contextmanager
def journal(
    folder: Folder,
    inputs: Mapping[str, str],
    *,
    resume: bool,
    check: Callable[[Mapping[str, Row]], None],
) -> Iterator[Journal]:
    """Open the journal of a folder, and lock it against other processes.

    Parameters
    ----------
    folder
        what finished runs left there stays until `Journal.finish`
    inputs
        name of each data set -> its `digest_of`, written to `.inputs.json`
    resume
        whether rows that are there are kept. Those that failed are not, nor is a last line
        that was torn, by a crash or a full disk
    check
        gets them before anything is changed, and refuses those that do not belong here

    Raises
    ------
    InputError
        The folder is in use; or it holds rows that must not be replaced; or, to resume, a config
        that is not part of this one, other data, a line that is no row, a run that is there twice.
    FedcalError
        The files cannot be written.
    """
    path = folder.path
    with _writing(f"to {path}"):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path, f"another comparison is writing to {path}", folder=True):
        for pattern in (CONFIG, ROWS, INPUTS, folder.done, *folder.files):
            for there in path.glob(pattern):
                if there.is_dir():
                    raise InputError(
                        f"cannot write results to {path}: {there.name} in it is a folder"
                    )
        rows: dict[str, Row] = {}
        place = _begun(path)
        if resume:
            if differs := folder.what_differs(begun_config(path)):
                raise InputError(f"{path} was begun with another grid: {'; '.join(differs)}")
            rows = _read(place / ROWS, folder.check)
            check(rows)
            read = {row["run"]["data"] for row in rows.values()}
            _check_inputs(place / INPUTS, {k: d for k, d in inputs.items() if k in read})
        elif not folder.overwrite and (finished := kept_runs(path, folder.done)):
            raise InputError(
                f"{path} holds an unfinished comparison (runs kept: {finished}): "
                "continue with --resume, or choose another --out"
            )
        if place == path and (path / folder.done).exists():
            place = path / UNFINISHED
        rows = {key: row for key, row in rows.items() if "error" not in row}
        begun = Journal(folder, place, rows, inputs)
        try:
            yield begun
        finally:
            begun.close()


class Journal:
    """A growing `rows.jsonl`, and what lies beside it.

    Attributes
    ----------
    folder
        of the runs
    rows
        finished runs by `key_of`

    Raises
    ------
    FedcalError
        If the files cannot be written: all that is known before the first run, and `rows.jsonl`,
        by which it is found, last.
    """

    def __init__(
        self, folder: Folder, place: Path, rows: dict[str, Row], inputs: Mapping[str, str]
    ) -> None:
        self.folder, self.rows, self._inputs = folder.path, rows, inputs
        self._place, self._path = place, place / ROWS
        with _writing(str(self._path)):
            place.mkdir(exist_ok=True)
            self._write_inputs(place)
            with whole_file(place / CONFIG) as f:
                f.write(folder.config.encode())
            with whole_file(self._path) as f:
                f.writelines(map(_line, rows.values()))
            self._file = self._path.open("ab", buffering=0)

    def append(self, key: str, row: Row) -> None:
        """Keep a finished run: it is on the disk when this returns."""
        line = _line(row)
        with _writing(str(self._path)):
            if self._file.write(line) != len(line):  # a disk that is just full takes a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        self.rows[key] = row

    def count(self) -> int:
        """Rows in the file; after an interrupt `rows` may lack the last one."""
        return len(_lines(self._path)) if self._path.exists() else len(self.rows)

    def finish(self, save: Callable[[Path], None]) -> None:
        """Let `save` write the finished runs to the folder, and leave nothing else there."""
        self.close()  # its file is replaced by one in the order of the table
        save(self.folder)
        if self._place != self.folder:
            with _writing(str(self._path)):
                self._write_inputs(self.folder)
                self._path.unlink()  # nothing is unfinished from now on
            shutil.rmtree(self._place, ignore_errors=True)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _write_inputs(self, folder: Path) -> None:
        with whole_file(folder / INPUTS) as f:
            os.chmod(f.name, 0o600)
            f.write(json.dumps({"data": dict(self._inputs)}).encode())


def _line(row: Row) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file, without a torn last one."""
    try:
        listed = path.read_bytes().split(b"\n")
    except OSError as e:
        raise InputError(f"cannot read {path}: {e.strerror}") from None
    return listed[:-1]


def _read(path: Path, check: Callable[[Any], Row]) -> dict[str, Row]:
    """Return the rows of a file by `key_of`."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(_lines(path), 1):
        try:
            row = check(json.loads(line, parse_constant=_refuse))
            key = key_of(row["run"])
        except (ValueError, RecursionError):
            raise InputError(f"{path}, line {number} is not a row") from None
        if key in rows:
            raise InputError(f"{path}, line {number}: this run occurs twice")
        rows[key] = row
    return rows


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _check_inputs(path: Path, inputs: Mapping[str, str]) -> None:
    """Refuse to go on with other data than those of the rows that are there."""
    anew = "start anew, with another --out"
    try:
        then = json.loads(path.read_bytes())["data"]
        changed = [name for name, digest in inputs.items() if then[name] != digest]
    except FileNotFoundError:
        raise InputError(f"{path} is missing, which names the data of these rows; {anew}") from None
    except OSError as e:
        raise InputError(f"cannot read {path}: {e.strerror}") from None
    except (ValueError, RecursionError, TypeError, LookupError):
        raise InputError(f"{path} is damaged, which names the data of these rows; {anew}") from None
    if changed:
        raise InputError(f"{', '.join(changed)} changed since this comparison was begun; {anew}")
