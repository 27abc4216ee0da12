"""Where runs are computed: in this process, in processes of this machine, or as Ray tasks.

Each pool takes runs and gives rows, in any order. Closing the generator, as an exception or
Ctrl-C does, ends every process that it started.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedcal.core.checks import one_of, whole
from fedcal.core.errors import FedcalError, InputError
from fedcal.core.parallel import usable_cores
from fedcal.datasets import IDS, Dataset
from fedcal.experiments.runs.engines.processes import LineProcess

_ARRAYS = (
    *("scores", "labels", *IDS, "other_scores"),
    *("test_scores", "test_labels", "test_client", "test_group"),
)
_FACTS = ("name", "input", "client_names", "group_names", "other_input")


def arrays_of(data: Dataset) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the arrays of a data set by the names of its fields, without those that are None."""
    return {k: a for k in _ARRAYS if (a := getattr(data, k)) is not None}


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
    for key in ("client_names", "group_names"):
        if facts[key] is not None:
            facts[key] = tuple(facts[key])
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
    "from fedcal.experiments.runs.sweep.pools import serve; serve(*sys.argv[2:])"
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
) -> AbstractContextManager[Pool]:
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
        whole("jobs", jobs, 1)
    engine = one_of("engine", engine or ("ray" if ray_address else "inline"), ENGINES)
    if engine == "ray":
        return on_ray(jobs, ray_address)
    if ray_address:
        raise InputError("ray_address needs the engine ray: give --engine ray")
    return nullcontext(partial(here, jobs=jobs or usable_cores()))


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


@contextmanager
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
