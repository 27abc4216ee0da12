"""Where runs are computed: in this process, in processes of this machine, or as Ray tasks.

Each pool takes requests and gives rows, in any order. Closing the generator, as an exception or
Ctrl-C does, ends every process that it started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from fedcal.datasets import Dataset
from fedcal.errors import FedcalError, InputError
from fedcal.experiments.comparison.row import Row, Run, run_row
from fedcal.experiments.comparison.shared_data import write_data
from fedcal.optional import need

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fedcal.experiments.comparison.worker import serve; serve(*sys.argv[2:])"
)
_WAITING = 4
"""Ray tasks that wait for each one that can run: enough to keep a cluster busy."""


Sources = Mapping[str, Dataset]
"""By the name that requests use."""


Pool = Callable[[Sequence[Run], Sources], Generator[Row]]
"""Requests to rows."""

Work = Callable[[Run, Dataset], Row]
"""One request and the data that it names to its row; a function of a module."""


def here(
    runs: Sequence[Run], sources: Sources, *, jobs: int, work: Work | None = None
) -> Generator[Row]:
    """On this machine: in `jobs` processes, or in this one if one is enough.

    `work` is what is done with a request; None = `run_row`.
    """
    jobs = min(jobs, len(runs))
    if jobs > 1:
        yield from in_processes(runs, sources, jobs, work)
    else:
        for run in runs:
            yield (work or run_row)(run, sources[run["data"]])


def in_processes(
    runs: Sequence[Run], sources: Sources, jobs: int, work: Work | None = None
) -> Generator[Row]:
    """In `jobs` interpreters of their own, each on one thread.

    They are no children that `multiprocessing` makes: those import the caller's main module
    again, which a script without a `__main__` guard does not survive, and send pickles. Each of
    ours reads the data once, takes a request and gives a row, a line of JSON each; it ends when
    the line to us is cut, also if we are killed.

    Raises
    ------
    FedcalError
        If a worker dies.
    """
    with TemporaryDirectory(prefix="fedcal-") as folder:
        for number, data in enumerate(sources.values()):
            write_data(Path(folder, str(number)), data)
        workers: list[_Worker] = []
        idle: SimpleQueue[_Worker] = SimpleQueue()

        def ask(run: Run) -> Row:
            worker = idle.get()
            try:
                return worker.ask(run)
            finally:
                idle.put(worker)

        threads = ThreadPoolExecutor(jobs)
        try:
            for _ in range(jobs):
                workers.append(_Worker(folder, list(sources), work or run_row))
                idle.put(workers[-1])
            for done in as_completed([threads.submit(ask, run) for run in runs]):
                yield done.result()
        finally:
            for worker in workers:
                worker.kill()
            threads.shutdown(cancel_futures=True)
            for worker in workers:
                worker.close()


class _Worker:
    """One interpreter that runs `fedcal.experiments.comparison.worker`."""

    def __init__(self, folder: str, names: list[str], work: Work) -> None:
        place = f"{work.__module__}:{work.__name__}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path), folder, json.dumps(names), place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(_THREADS, "1"),
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for us; we end the workers
        )

    def ask(self, run: Run) -> Row:
        """One run there."""
        try:
            to = cast(IO[str], self._process.stdin)
            to.write(json.dumps(run) + "\n")
            to.flush()
            line = cast(IO[str], self._process.stdout).readline()
        except BrokenPipeError:
            line = ""
        if not line.endswith("\n"):
            raise FedcalError(f"a worker process died ({_why(self._process.wait())})")
        row: Row = json.loads(line)
        return row

    def kill(self) -> None:
        """Stop it, whatever it does; who waits for its answer gets none."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the line to it, once nobody uses it."""
        for end in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # a request that it did not take
                cast(IO[str], end).close()


def _why(code: int) -> str:
    if code == -9:
        return "killed, perhaps for want of memory: try fewer --jobs"
    return f"exit code {code}, see above"


@contextmanager
def on_ray(jobs: int | None, address: str | None, work: Work | None = None) -> Iterator[Pool]:
    """As tasks of one core each, on a Ray cluster or one that is started here.

    Parameters
    ----------
    jobs : cores of a Ray that is started here; None = all
    address : of a cluster that runs already (each node needs this version of fedcal); None or
        "local" = start one here and end it afterwards. A Ray that this process is connected to
        already is used as it is, and stays
    work : what is done with a request; None = `run_row`

    Raises
    ------
    InputError
        Ray is missing, or there is no cluster at that address.
    """
    ray = need("ray", "simulation", "comparing on Ray")
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, jobs, address or "local")
    try:
        yield partial(_tasks, ray, ours, work or run_row)
    finally:
        if ours:
            ray.shutdown()


def _tasks(
    ray: Any, ours: bool, work: Work, runs: Sequence[Run], sources: Sources
) -> Generator[Row]:
    waiting: list[Any] = []
    try:
        task = ray.remote(num_cpus=1, max_retries=0)(work)
        there = {name: ray.put(data) for name, data in sources.items()}
        room = _WAITING * max(1, int(ray.cluster_resources().get("CPU", 1)))
        for run in runs:
            if len(waiting) >= room:
                done, waiting = ray.wait(waiting)
                yield ray.get(done[0])
            waiting.append(task.remote(run, there[run["data"]]))
        while waiting:
            done, waiting = ray.wait(waiting)
            yield ray.get(done[0])
    except ray.exceptions.WorkerCrashedError as e:
        raise FedcalError(f"a Ray worker died: {' '.join(str(e).split())}") from None
    finally:
        for left in [] if ours else waiting:  # ours end when we disconnect
            ray.cancel(left)


def _connect(ray: Any, jobs: int | None, address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its warning of a change
    here: dict[str, Any] = {}
    if address == "local":
        here = {"num_cpus": jobs, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    else:
        from fedcal.experiments.engines.ray import check_cluster

        check_cluster(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **here)
    except (ConnectionError, RuntimeError, ValueError) as e:
        said = " ".join(str(e).split())[:300]
        raise InputError(f"no Ray cluster at {address!r}: {said}") from None
