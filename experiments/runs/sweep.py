"""Many runs: in this process, in others or on Ray, kept in a folder that can be resumed.

A pool takes runs and gives rows, in any order. Closing the generator, as an exception or Ctrl-C
does, ends every process that it started.

The folder holds `config.toml`, and `rows.jsonl` row by row while it grows. One that holds finished
runs stays as it is until the next ones, or the same ones grown, are saved: until then those lie in
the hidden folder `.unfinished` in it. `.inputs.json` says what data the rows were made of, so that
others do not get among them. It is for `--resume` alone, only its owner may read it, and it is not
to be published: who knows all rows of a data set but one can find the last one by its digest.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from fedcal.core import checks, parallel
from fedcal.core.errors import FedcalError, InputError, Interrupted, system_errors
from fedcal.datasets import Dataset
from fedcal.experiments.runs.config import read_options
from fedcal.experiments.runs.engines.processes import LineProcess
from fedcal.experiments.runs.result import versions
from fedcal.storage.atomic import locked, whole_file
from fedcal.strategies.server.outcome import Progress

_FACTS = ("name", "input", "client_names", "group_names", "other_input")


def arrays_of(data: Dataset) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the arrays of a data set by the names of its fields, without those that are None."""
    every = {f.name: getattr(data, f.name) for f in fields(data)}
    return {name: value for name, value in every.items() if isinstance(value, np.ndarray)}


def digest_of(data: Dataset) -> str:
    """SHA-256 of everything that a run reads.

    Not to be published: who knows all rows but one can find the last one by it.
    """
    digest = hashlib.sha256()
    digest.update(repr((data.input, data.client_names)).encode())
    if data.group_names is not None or data.other_input is not None:
        digest.update(repr((data.group_names, data.other_input)).encode())
    for name, array in arrays_of(data).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_data(folder: Path, data: Dataset) -> None:
    """Write a checked data set into a new folder."""
    folder.mkdir()
    for name, array in arrays_of(data).items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
    facts = {k: getattr(data, k) for k in _FACTS}
    (folder / "facts.json").write_text(json.dumps(facts), "utf-8")


def read_data(folder: Path) -> Dataset:
    """Return the data set that `write_data` wrote. Its arrays are read-only."""
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text("utf-8"))
    facts = {key: tuple(v) if isinstance(v, list) else v for key, v in facts.items()}
    arrays: dict[str, Any] = {
        path.stem: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        for path in folder.glob("*.npy")
    }
    return Dataset(**facts, **arrays)


def serve(folder: str, names: str, work: str) -> None:
    """Answer runs until nobody sends them any more.

    Parameters
    ----------
    folder
        data set k is in its folder k, as `write_data` wrote it. Removed at the end: who
        sends no more, but has not ended us, was killed
    names
        JSON, the list of data sets
    work
        "MODULE:NAME" of the function that makes a row of a run and its data
    """
    module, _, function = work.partition(":")
    row_of = getattr(importlib.import_module(module), function)
    places = {name: Path(folder, str(k)) for k, name in enumerate(json.loads(names))}
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a package prints is no answer

    @cache
    def source(name: str) -> Dataset:
        return read_data(places[name])

    for line in sys.stdin:
        run = json.loads(line)
        row = json.dumps(row_of(run, source(run["data"])), allow_nan=False)
        try:
            print(row, file=answers, flush=True)
        except BrokenPipeError:
            break
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)  # without a word about what could not be sent


ENGINES = ("inline", "ray")

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that say on how many threads a process computes."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fedcal.experiments.runs.sweep import serve; serve(*sys.argv[2:])"
)
_WAITING = 4
"""Ray tasks that wait for each one that can run: enough to keep a cluster busy."""

Run = dict[str, Any]
"""What is to be computed, in plain values; `data` names the data set."""

Row = dict[str, Any]
"""What came of it: `run`, `versions` (of the packages), and the results, or `error`."""

Sources = Mapping[str, Dataset]
"""Data sets by the name that runs use."""

Work = Callable[[Run, Dataset], Row]
"""Computes a run on the data that it names; a function of a module."""

Pool = Callable[[Sequence[Run], Sources, Work], Generator[Row]]
"""Runs to rows."""


def key_of(run: Run) -> str:
    """Return a key that is equal for equal runs."""
    return json.dumps(run, sort_keys=True, allow_nan=False)


def pool_of(
    jobs: int | None, engine: str | None, ray_address: str | None
) -> contextlib.AbstractContextManager[Pool]:
    """Return the pool that computes runs; nothing is started before it is entered.

    Parameters
    ----------
    jobs
        processes; None = the cores that may be used. 1 = this process
    engine
        "inline" = processes of this machine (None); "ray" = tasks on Ray
    ray_address
        of a Ray cluster, or "local"; implies "ray"

    Raises
    ------
    InputError
        Options that do not go together.
    """
    if jobs is not None:
        checks.whole("jobs", jobs, 1)
    engine = checks.one_of("engine", engine or ("ray" if ray_address else "inline"), ENGINES)
    if engine == "ray":
        return on_ray(jobs, ray_address)
    checks.unused("the engine is not ray", ray_address=ray_address)
    return contextlib.nullcontext(partial(here, jobs=jobs or parallel.usable_cores()))


def here(runs: Sequence[Run], sources: Sources, work: Work, *, jobs: int) -> Generator[Row]:
    """On this machine: in `jobs` processes, or in this one if one is enough."""
    jobs = min(jobs, len(runs))
    if jobs > 1:
        yield from in_processes(runs, sources, work, jobs)
    else:
        for run in runs:
            yield work(run, sources[run["data"]])


def in_processes(runs: Sequence[Run], sources: Sources, work: Work, jobs: int) -> Generator[Row]:
    """Compute runs in `jobs` separate interpreters, each on one thread.

    They are no children that `multiprocessing` makes: those import the caller's main module
    again, which a script without a `__main__` guard does not survive, and send pickles. Each of
    ours reads the data once, takes a run and gives a row, a line of JSON each; it ends when
    the line to us is cut, also if we are killed.

    Raises FedcalError if a worker dies.
    """
    with TemporaryDirectory(prefix="fedcal-") as folder:
        for number, data in enumerate(sources.values()):
            write_data(Path(folder, str(number)), data)
        place = f"{work.__module__}:{work.__name__}"
        start = [sys.executable, "-c", _START, json.dumps(sys.path)]
        command = [*start, folder, json.dumps(list(sources)), place]
        workers: list[LineProcess] = []
        idle: SimpleQueue[LineProcess] = SimpleQueue()

        def ask(run: Run) -> Row:
            worker = idle.get()
            try:
                row: Row = worker.ask(run)
            except EOFError:
                code = worker.wait()
                why = f"exit code {code}, see above"
                if code == -9:
                    why = "killed, perhaps for want of memory: try fewer --jobs"
                raise FedcalError(f"a worker process died ({why})") from None
            finally:
                idle.put(worker)
            return row

        threads = ThreadPoolExecutor(jobs)
        try:
            for _ in range(jobs):
                workers.append(LineProcess(command, os.environ | dict.fromkeys(THREADS, "1")))
                idle.put(workers[-1])
            for done in as_completed([threads.submit(ask, run) for run in runs]):
                yield done.result()
        finally:
            for worker in workers:
                worker.kill()
            threads.shutdown(cancel_futures=True)
            for worker in workers:
                worker.close()


@contextlib.contextmanager
def on_ray(jobs: int | None, address: str | None) -> Iterator[Pool]:
    """Compute runs as tasks of one core each, on a Ray as `engines.ray.cluster` has it."""
    from fedcal.experiments.runs.engines.ray import cluster

    with cluster(jobs, address) as ray:
        yield partial(_tasks, ray)


def _tasks(ray: Any, runs: Sequence[Run], sources: Sources, work: Work) -> Generator[Row]:
    waiting: list[Any] = []
    try:
        task = ray.remote(num_cpus=1, max_retries=0)(work)
        there = {name: ray.put(data) for name, data in sources.items()}
        room = _WAITING * max(1, int(ray.cluster_resources().get("CPU", 1)))
        missing = list(runs)
        while missing or waiting:
            if missing and len(waiting) < room:
                run = missing.pop(0)
                waiting.append(task.remote(run, there[run["data"]]))
            else:
                done, waiting = ray.wait(waiting)
                yield ray.get(done[0])
    except ray.exceptions.WorkerCrashedError as e:
        raise FedcalError(f"a Ray worker died: {' '.join(str(e).split())}") from None
    finally:
        for left in waiting:  # an interrupt leaves some
            ray.cancel(left)


CONFIG, ROWS = "config.toml", "rows.jsonl"
"""What is run; a line for each finished run."""

INPUTS, UNFINISHED = ".inputs.json", ".unfinished"
"""Digests of the data by name, not to be published; where work goes on in a finished folder."""


class Folder(NamedTuple):
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
    overwrite
        begin anew where something is unfinished
    """

    path: Path
    config: str
    what_differs: Callable[[Mapping[str, Any]], Sequence[str]]
    check: Callable[[Any], Row]
    done: str
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
        with contextlib.closing(Journal(folder, place, rows, inputs)) as begun:
            yield begun


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
    with system_errors(f"cannot read {path}"):
        return path.read_bytes().split(b"\n")[:-1]


def _read(path: Path, check: Callable[[Any], Row]) -> dict[str, Row]:
    """Return the rows of a file by `key_of`."""
    rows: dict[str, Row] = {}
    number = 0
    for number, line in enumerate(_lines(path), 1):
        try:
            row = check(json.loads(line, parse_constant=_refuse))
            key = key_of(row["run"])
        except (ValueError, RecursionError):
            raise InputError(f"{path}, line {number} is not a row") from None
        rows[key] = row
    checks.same(f"number of runs that differ in {path}", len(rows), number)
    return rows


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _check_inputs(path: Path, inputs: Mapping[str, str]) -> None:
    """Refuse to go on with other data than those of the rows that are there."""
    anew = "start anew, with another --out"
    with system_errors(f"cannot read {path}, which names the data of these rows"):
        content = path.read_bytes()
    try:
        then = json.loads(content)["data"]
        changed = [name for name, digest in inputs.items() if then[name] != digest]
    except (ValueError, RecursionError, TypeError, LookupError):
        raise InputError(f"{path} is damaged, which names the data of these rows; {anew}") from None
    if changed:
        raise InputError(f"{', '.join(changed)} changed since this comparison was begun; {anew}")


class Savable(Protocol):
    """Object made from all rows, which can be saved."""

    def save(self, out: Path) -> None:
        """Write it into a folder, `config.toml` and `rows.jsonl` in order among it."""


Made = TypeVar("Made", bound=Savable)


def run_all(
    runs: Sequence[Run],
    sources: Sources,
    work: Work,
    made_of: Callable[[list[Row]], Made],
    *,
    place: contextlib.AbstractContextManager[Pool],
    folder: Folder | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Made:
    """Run everything, and save what is made of it.

    Parameters
    ----------
    runs
        equal ones are run once
    sources
        the data sets that runs name
    work
        computes one run; a function of a module, so that other processes find it
    made_of
        takes all rows, in the order of `runs`
    place
        where, from `pool_of`
    folder
        keeps finished rows while it goes on, and then what is made of them; None = no files
    resume
        go on with what the folder holds, and run again what failed
    progress
        called after each run with runs finished, runs kept earlier among them, and all

    Returns
    -------
    Made
        What `made_of` gives.

    Raises
    ------
    InputError
        A folder that holds something else, or that is not to be replaced; nothing ran.
    FedcalError
        A worker died, or nothing can be written; finished runs are kept in the folder.
    Interrupted
        Ctrl-C; finished runs are kept in the folder.
    """
    named = {key_of(run): run for run in runs}
    step = progress or (lambda done, total: None)
    rows: dict[str, Row] = {}
    keep: Callable[[str, Row], None] = rows.__setitem__
    log: Journal | None = None
    with place as pool, contextlib.ExitStack() as stack:
        if folder is not None:
            inputs = {name: digest_of(source) for name, source in sources.items()}
            check = partial(_check_kept, runs=named)
            log = stack.enter_context(journal(folder, inputs, resume=resume, check=check))
            rows, keep = log.rows, log.append
        try:
            step(len(rows), len(named))
            missing = [run for key, run in named.items() if key not in rows]
            with contextlib.closing(pool(missing, sources, work)) as finished:
                for row in finished:
                    keep(key_of(row["run"]), row)
                    step(len(rows), len(named))
            made = made_of([rows[key_of(run)] for run in runs])
            if log is not None:
                log.finish(made.save)
        except (KeyboardInterrupt, FedcalError) as e:
            if log is None:
                raise
            message = f"{log.count()} of {len(named)} runs are kept in {log.folder}"
            if isinstance(e, FedcalError):
                raise FedcalError(f"{e}; {message}; go on with --resume") from None
            raise Interrupted(f"{message}; continue with --resume") from None
        return made


def _check_kept(rows: Mapping[str, Row], runs: Mapping[str, Run]) -> None:
    """Refuse to put rows together that are not of these runs, or not of the same code."""
    now = versions()
    for key, row in rows.items():
        if key not in runs:
            raise InputError(f"a row that is kept is not of this grid: {key[:300]}")
        for name in now:
            what = f"version of {name} in the runs that are kept (else start anew)"
            checks.same(what, now[name], row["versions"].get(name))
