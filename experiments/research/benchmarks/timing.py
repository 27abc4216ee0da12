"""The stopwatch: warm up, take turns, keep every repetition.

Peers whose packages clash with ours or are heavy are timed by an interpreter of their own: `make
bench` makes that environment. Arrays go over as `.npy` files, once; afterwards every turn is a line
out and a line back, with the seconds that passed inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from fedcal.experiments.research.benchmarks import peers
from fedcal.experiments.runs.sweep import THREADS, Row

VARIABLE = "FEDCAL_PEERS"
"""Environment variable that names the peers' interpreter."""

APART = ("netcal", "probmetrics", "mapie", "torchcp")
"""The packages in its environment; the names of their functions in `peers` begin so."""

PFL = "pfl"
"""The package with an environment of its own."""

_SETTINGS = {
    **peers.HUGE_PAGES,
    "TQDM_DISABLE": "1",
    "PYTHONWARNINGS": "ignore",
    **dict.fromkeys(THREADS, "1"),
}

SLOW = 1.0
"""Seconds from which a repetition counts as slow: its warm-up run is kept as a measurement."""

_SLOW_REPETITIONS = 3  # their median does not see a cold start
_MOST_REPETITIONS = 51

Prepare = Callable[[], Callable[[], Any]]
"""Makes, outside the clock, what is timed; ImportError if something is not there."""


class PeerMissing(ImportError):
    """A peer cannot be timed here; the message says why."""


@dataclass(frozen=True)
class Contestant:
    """One way to do the work.

    Attributes
    ----------
    name
        as shown
    prepare
        or what gives it when it is entered, and is left when everybody has been timed
    values
        what a result is worth, so that speed is not bought by a worse one
    pieces
        of work in a repetition; the seconds are those of one
    """

    name: str
    prepare: Prepare | AbstractContextManager[Prepare]
    values: Callable[[Any], dict[str, float]]
    pieces: int = 1


@dataclass(frozen=True)
class Case:
    """One piece of work.

    Attributes
    ----------
    title
        as shown; "" = the row's name
    target
        seconds that our median should stay below; None = just shown
    contestants
        the first is ours
    """

    title: str
    target: float | None
    contestants: Sequence[Contestant]


@dataclass(frozen=True)
class Inside:
    """A result that was timed by itself: in another process, or as a share of a run."""

    seconds: float
    result: Any


def named(key: str) -> Callable[[Any], dict[str, float]]:
    """Return a function that names a result which is a number itself."""
    return lambda result: {key: result}


def checksum(values: NDArray[Any]) -> int:
    """Return a checksum: equal numbers mean equal bits."""
    return zlib.crc32(values.tobytes())


def compare(contestants: Sequence[Contestant], repetitions: int) -> list[Row]:
    """Time contestants in turns, so that all of them see the same weather.

    Parameters
    ----------
    repetitions
        at least so many for each; more (up to 51) for what takes little time, three
        for what takes more than a second (also if only a part of it counts)

    Returns
    -------
    list[Row]
        For each its `name`, `median` and `min` (seconds), `repetitions` and `values`; or its name
        and why it is `skipped`.
    """
    rows: list[Row] = [{"name": c.name} for c in contestants]
    with ExitStack() as stack:
        turns = [
            stack.enter_context(closing(_turns(c, repetitions, row)))
            for c, row in zip(contestants, rows, strict=True)
        ]
        for _ in zip_longest(*turns):
            pass
    return rows


def _turns(contestant: Contestant, repetitions: int, row: Row) -> Generator[None]:
    """Run it once a turn; `row` is complete after the last one."""
    prepare = contestant.prepare
    try:
        with prepare if isinstance(prepare, AbstractContextManager) else nullcontext(prepare) as p:
            first, result, whole = _clock(p, contestant.pieces)
            values = contestant.values(result)
            longest = max(first, whole)
            if longest > SLOW:
                taken, wanted = [first], min(repetitions, _SLOW_REPETITIONS)
            else:
                more = min(_MOST_REPETITIONS, int(SLOW / longest)) if repetitions > 2 else 0
                taken, wanted = [], max(repetitions, more)
            while len(taken) < wanted:
                yield
                taken.append(_clock(p, contestant.pieces)[0])
    except ImportError as why:
        row["skipped"] = f"{why.name} is not installed" if why.name else str(why)
        return
    row |= {"median": statistics.median(taken), "min": min(taken)}
    row |= {"repetitions": len(taken), "values": values}


def _clock(prepare: Prepare, pieces: int) -> tuple[float, Any, float]:
    """Return the seconds that count, the result, and all seconds that passed."""
    run = prepare()
    start = time.perf_counter()
    result = run()
    passed = time.perf_counter() - start
    if isinstance(result, Inside):
        return result.seconds, result.result, passed
    return passed / pieces, result, passed


# -- a process of its own, so that its peak memory is its own -----------------------------------


def alone(name: str, module: str, *numbers: int) -> Contestant:
    """Time `python -m MODULE NUMBERS`, whose output is that of `print_seconds`."""
    command = [sys.executable, "-m", module, *map(str, numbers)]

    def run() -> Inside:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return Inside(*json.loads(done.stdout))

    return Contestant(name, lambda: run, dict)


def print_seconds(prepare: Callable[..., Callable[[], object]]) -> None:
    """Time what the numbers of the command line prepare; print seconds and memory as JSON.

    Peak MiB are those of the process before (interpreter, imports and rows) and after it.
    """
    run, before = prepare(*map(int, sys.argv[1:])), peak_mib()
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    print(json.dumps((seconds, {"MiB before": before, "peak MiB": peak_mib()})))


def peak_mib() -> float:
    """Most memory that this process ever held, in MiB.

    Linux tells `getrusage` also what the parent held when it started us, so its own figure for
    this process comes first.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text("ascii").partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# -- peers --------------------------------------------------------------------------------------


def peer(
    name: str,
    values: Callable[[Any], dict[str, float]],
    function: str,
    arrays: Mapping[str, NDArray[Any]],
    **options: Any,
) -> Contestant:
    """Return a function of `peers`, here or in its own environment.

    Parameters
    ----------
    name
        as shown
    values
        what a result is worth
    arrays, options
        what the function takes
    """
    if function.startswith(APART):
        return Contestant(name, apart(function, arrays, **options), values)
    return Contestant(name, partial(getattr(peers, function), **arrays, **options), values)


@contextmanager
def apart(function: str, arrays: Mapping[str, NDArray[Any]], **options: Any) -> Iterator[Prepare]:
    """Start a process for one peer; it ends when the block is left.

    Its interpreter is `FEDCAL_PEERS`, or that of `peers/` (or `pfl/`) inside our own environment.

    Raises
    ------
    PeerMissing
        There is no environment, the peer is not in it, or it failed.
    """
    where = PFL if function.startswith(PFL) else "peers"
    python = Path(os.environ.get(VARIABLE) or Path(sys.prefix) / where / "bin" / "python")
    if not python.is_file():
        raise PeerMissing(
            f"no environment for {', '.join((*APART, PFL))}: `make bench-all` has one"
        )
    with ExitStack() as stack:
        with TemporaryDirectory(prefix="fedcal-peer-") as folder:
            for name, array in arrays.items():
                np.save(Path(folder, f"{name}.npy"), array)
            asked = json.dumps({"peer": function, "folder": folder, "options": options})
            command = [str(python), "-P", peers.__file__, asked]
            process = stack.enter_context(closing(LineProcess(command, os.environ | _SETTINGS)))
            _repetition(process)  # on few rows, once it has read all of them
        yield lambda: partial(_repetition, process)


class LineProcess(subprocess.Popen[str]):
    """A process that answers each line of JSON on its stdin by one on its stdout.

    Parameters
    ----------
    command
        executable and arguments
    env
        its whole environment
    """

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        super().__init__(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for us; we end it
        )

    def ask(self, question: Any) -> Any:
        """Send a question and return the answer; EOFError if the process ends without one."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, and so have its answers
            print(json.dumps(question), file=self.stdin, flush=True)
        line = cast(IO[str], self.stdout).readline()
        if not line.endswith("\n"):
            raise EOFError
        return json.loads(line)

    def close(self) -> None:
        """Close the lines to the process, after which it should end by itself."""
        with contextlib.suppress(BrokenPipeError), self:  # a question that it did not take
            pass


def _repetition(process: LineProcess) -> Inside:
    try:
        answer: dict[str, Any] = process.ask(None)
    except EOFError:
        raise PeerMissing("its process has ended") from None
    if "failed" in answer:
        raise PeerMissing(answer["failed"])
    return Inside(**answer)
