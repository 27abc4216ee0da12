"""Many runs: in this process or in others, kept in a folder that can be resumed.

Rows come in any order. Closing their generator, as an exception or Ctrl-C does, ends every process
that it started.

The folder holds `config.toml`, and `rows.jsonl` row by row while it grows; tables and pages of runs
that finished there before stay until the next ones are saved. `.inputs.json` says what data the
rows were made of, so that others do not get among them. It is for `--resume` alone, only its owner
may read it, and it is not to be published: who knows all rows of a data set but one can find the
last one by its digest.
"""

import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fedcal.core import checks
from fedcal.core.checks import FedcalError, InputError, Interrupted, system_errors
from fedcal.datasets import Dataset
from fedcal.results.files import versions, write_folder
from fedcal.results.labels import family_of
from fedcal.run.config import read_options
from fedcal.storage.atomic import locked
from fedcal.strategies.server.outcome import Progress

Run = dict[str, Any]
"""Options of a run in plain values; `data` names the data set."""

Row = dict[str, Any]
"""Record of a run: `run`, `versions` (of the packages), and the results, or `error`."""

Sources = Mapping[str, Dataset]
"""Data sets by the name that runs use."""

Work = Callable[[Run, Dataset], Row]
"""Computes a run on the data that it names; a function of a module."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that say on how many threads a process computes."""

CONFIG, ROWS, DONE = "config.toml", "rows.jsonl", "compare.json"
"""Files of the grid, of a line for each finished run, and of the table once all are finished."""

PARTS = {"run", "versions", "before", "after", "privacy", "communication", "seconds"}
"""Keys of the row of a run that did not fail."""

PRIVACY = (
    *("unit", "adjacency", "trust", "epsilon", "delta", "mechanism", "noise_std"),
    *("noise_source", "releases"),
)
SENT = ("bytes_up_per_client", "bytes_down_per_client", "rounds")
"""Keys of a row's `privacy`, and of its `communication`.

Rows are published: nothing in them follows from the fit rows but what a release gives away."""

LARGEST = 1e100
"""No number of a row is larger; the squares of such numbers are finite."""

INPUTS = ".inputs.json"
"""Digests of the data by name, not to be published."""


def key_of(run: Run) -> str:
    """Return a key that is equal for equal runs."""
    return json.dumps(run, sort_keys=True, allow_nan=False)


def digest_of(data: Dataset) -> str:
    """SHA-256 of everything that a run reads.

    Not to be published: who knows all rows but one can find the last one by it.
    """
    digest = hashlib.sha256()
    for name in (f.name for f in fields(data)):
        value = getattr(data, name)
        if isinstance(value, np.ndarray):
            digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
        elif name not in ("name", "given"):
            digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()


# --- where runs are computed ----------------------------------------------------------------------


def in_processes(runs: Sequence[Run], sources: Sources, work: Work, jobs: int) -> Generator[Row]:
    """Compute runs in `jobs` separate interpreters, each on one thread.

    Each has a copy of the data. They end when this process closes its end of a pipe, or is killed.
    Where one is enough, it is this process.

    Raises FedcalError if a worker dies.
    """
    if (jobs := min(jobs, len(runs))) < 2:
        yield from (work(run, sources[run["data"]]) for run in runs)
        return
    spawn = multiprocessing.get_context("spawn")
    theirs, ours = spawn.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, spawn, _begin, (sources, theirs))
    try:
        with _alone_on_a_thread():
            waiting = [pool.submit(_compute, work, run) for run in runs]
        for done in as_completed(waiting):
            yield done.result()
    except BrokenExecutor:
        why = "killed, perhaps for want of memory: try fewer --jobs"
        raise FedcalError(f"a worker process died ({why})") from None
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


@contextlib.contextmanager
def _alone_on_a_thread() -> Iterator[None]:
    """Within the block processes start on one thread each, and do not import our main module.

    A script without a `__main__` guard would not survive that.
    """
    main, before = sys.modules["__main__"], dict(os.environ)
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name in THREADS:
            del os.environ[name]
        os.environ.update(before)


_held: dict[str, Dataset] = {}
"""In a worker, its data."""


def _begin(sources: Sources, line: Connection) -> None:
    """Begin a worker; it ends once nobody holds the other end of a line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    os.dup2(2, 1)  # what a package prints is no result
    _held.update(sources)

    def end() -> None:
        with contextlib.suppress(EOFError):
            line.recv()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _compute(work: Work, run: Run) -> Row:
    return work(run, _held[run["data"]])


# --- where rows are kept --------------------------------------------------------------------------


class Journal(dict[str, Row]):
    """Finished runs by `key_of`; those that are set are in `rows.jsonl` of a folder, too.

    Parameters
    ----------
    out
        the folder; made if there is none
    resume
        whether rows that are there are kept. Those that failed are not, nor is a last line
        that was torn, by a crash or a full disk
    overwrite
        begin anew, whatever is there

    Attributes
    ----------
    begun
        to resume, the options that the runs in the folder were begun with

    Raises
    ------
    InputError
        There is nothing to resume, or something that must not be replaced.
    """

    def __init__(self, out: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        super().__init__()
        self.out, self._path = out, out / ROWS
        self._resume, self._overwrite = resume, overwrite
        self.begun: Mapping[str, Any] = {}
        self._look()

    def _look(self) -> None:
        """Find what was begun, or refuse it."""
        out = self.out
        if self._resume:
            if not (out / CONFIG).is_file() or not self._path.is_file():
                raise InputError(f"nothing to resume in {out}; start without --resume")
            self.begun = read_options(out / CONFIG)
        elif not (self._overwrite or (out / DONE).exists()) and (kept := len(_lines(self._path))):
            raise InputError(
                f"{out} holds an unfinished comparison (runs kept: {kept}): "
                "continue with --resume, or choose another --out"
            )

    @contextlib.contextmanager
    def opened(
        self, config: str, sources: Sources, runs: Sequence[Run]
    ) -> Iterator[dict[str, Row]]:
        """Lock the folder against other processes, and let rows be set.

        Parameters
        ----------
        config
            text of `config.toml`
        sources
            the data, whose digests are written to `.inputs.json`
        runs
            all that may be kept

        Raises
        ------
        InputError
            The folder is in use, or cannot be written; or, to resume, it holds a line that is no
            row, a run that is not among these, or of another version, or of other data. Nothing
            is changed then.
        FedcalError
            What the block raises, and how many runs are kept.
        Interrupted
            Ctrl-C in the block.
        """
        inputs = {name: digest_of(data) for name, data in sources.items()}
        known = {key_of(run) for run in runs}
        with system_errors(f"cannot write to {self.out}"):
            self.out.mkdir(parents=True, exist_ok=True)
        with locked(self.out, f"another comparison is writing to {self.out}", folder=True):
            self._look()  # another process may have finished runs since
            if self._resume:
                self._read(inputs, known)

            def begin(folder: Path) -> None:
                (folder / INPUTS).touch(0o600)
                rows = "".join(map(line_of, self.values()))
                texts = {INPUTS: json.dumps({"data": inputs}), CONFIG: config, ROWS: rows}
                for name, content in texts.items():
                    (folder / name).write_text(content, "utf-8")

            write_folder(self.out, begin)
            try:
                with self._path.open("ab", buffering=0) as self._file:
                    yield self
            except (KeyboardInterrupt, FedcalError) as e:
                many = len(_lines(self._path))  # an interrupt may keep the last one from us
                kept = f"{many} of {len(known)} runs are kept in {self.out}"
                if isinstance(e, KeyboardInterrupt):
                    raise Interrupted(f"{kept}; continue with --resume") from None
                raise FedcalError(f"{e}; {kept}; go on with --resume") from None

    def _read(self, inputs: Mapping[str, str], runs: Collection[str]) -> None:
        """Take the rows that are there, or refuse them."""
        for number, line in enumerate(_lines(self._path), 1):
            try:
                row = json.loads(line)
                line_of(row)  # no NaN, no infinity
                key = key_of(row["run"])
                check_row(row)
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                raise InputError(f"{self._path}, line {number} is not a row") from None
            if key not in runs or key in self:
                raise InputError(
                    f"{self.out} was begun with another grid, which may grow and not change: a row "
                    f"that is kept is not of this one, or there twice: {key[:300]}"
                )
            for name, now in versions().items():
                what = f"{name} that {self._path} was made by (start anew, with another --out)"
                checks.same(what, now, row["versions"].get(name))
            self.update({key: row})
        changed = {row["run"]["data"] for row in self.values()}
        with contextlib.suppress(OSError, ValueError, RecursionError, TypeError, LookupError):
            then = json.loads((self.out / INPUTS).read_bytes())["data"]
            changed = {name for name in changed if then[name] != inputs[name]}
        if changed:
            raise InputError(
                f"{', '.join(sorted(changed))} changed since this comparison was begun, or "
                f"{self.out / INPUTS} did; start anew, with another --out"
            )
        for key in [key for key, row in self.items() if "error" in row]:
            del self[key]

    def __setitem__(self, key: str, row: Row) -> None:
        """Keep a finished run: it is on the disk when this returns."""
        line = line_of(row).encode()
        with system_errors(f"cannot write {self._path}"):
            if self._file.write(line) != len(line):  # a disk that is just full takes a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        super().__setitem__(key, row)


def check_row(row: Any) -> None:
    """Raise ValueError, or what looking at it raises, unless a row that was read is complete."""
    if "error" in row:
        complete = row.keys() == {"run", "versions", "error"} and isinstance(row["error"], str)
    else:
        numbers = [n for k in ("before", "after", "communication") for n in row[k].values()]
        numbers.append(row["seconds"] or 0)
        keys = row.keys(), row["privacy"].keys(), row["communication"].keys()
        metrics = {*family_of([row["run"].get("method", "")]).complete}
        complete = (
            keys == (PARTS, {*PRIVACY}, {*SENT})
            and (not metrics or row["before"].keys() == row["after"].keys() == metrics)
            and all(type(n) in (float, int) and abs(n) <= LARGEST for n in numbers)
        )
    if not (complete and isinstance(row["versions"], dict)):
        raise ValueError("not a row")


def line_of(row: Row) -> str:
    """Return a row as a line; ValueError for NaN and infinity."""
    return json.dumps(row, allow_nan=False) + "\n"


def _lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file, without a torn last one; none where there is no file."""
    with system_errors(f"cannot read {path}"):
        return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def run_all(
    runs: Sequence[Run],
    sources: Sources,
    work: Work,
    rows: dict[str, Row],
    progress: Progress | None = None,
    *,
    jobs: int,
) -> list[Row]:
    """Compute those of the runs that `rows` lacks, and put them there.

    Parameters
    ----------
    runs
        equal ones are run once
    sources
        the data sets that runs name
    work
        computes one run; a function of a module, so that other processes find it
    rows
        by `key_of`, such as a `Journal`
    progress
        called after each run with runs finished, runs kept earlier among them, and all
    jobs
        processes; 1 = this one

    Returns
    -------
    list of dict
        The rows, in the order of `runs`.

    Raises
    ------
    FedcalError
        A worker died, or `rows` cannot keep another one.
    """
    named = {key_of(run): run for run in runs}
    step = progress or (lambda done, total: None)
    step(len(rows), len(named))
    missing = [run for key, run in named.items() if key not in rows]
    with contextlib.closing(in_processes(missing, sources, work, jobs)) as finished:
        for row in finished:
            rows[key_of(row["run"])] = row
            step(len(rows), len(named))
    return [rows[key_of(run)] for run in runs]
