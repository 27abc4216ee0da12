"""The stopwatch: warm up, take turns, keep every repetition.

Peers whose packages clash with ours or are heavy are timed by an interpreter of their own: `make
bench` makes that environment. Arrays go over as `.npy` files, once; afterwards every turn is a line
out and a line back, with the seconds that passed inside.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks import peers
from fedcal.run.sweep import THREADS, Row
from fedcal.storage.toml_files import read_toml

VARIABLE = "FEDCAL_PEERS"
"""Environment variable that names the peers' interpreter."""

APART = ("netcal", "probmetrics")
"""The packages in its environment; the names of their functions in `peers` begin so."""

PFL = "pfl"
"""The package with an environment of its own."""

PEERS = read_toml(Path(__file__).with_name("peers.toml"))
"""Work -> name of a peer, as shown -> its `function` of `peers` and options."""

_SETTINGS = {
    **peers.HUGE_PAGES,
    "TQDM_DISABLE": "1",
    "PYTHONWARNINGS": "ignore",
    **dict.fromkeys(THREADS, "1"),
}

SLOW = 1.0
"""Seconds from which a repetition counts as slow: its warm-up run is kept as a measurement."""

_SLOW_REPETITIONS, _MOST_REPETITIONS = 3, 51  # a median of three does not see a cold start

Prepare = Callable[[], Callable[[], Any]]
"""Makes, outside the clock, what is timed; ImportError if something is not there."""


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
    """

    name: str
    prepare: Prepare | AbstractContextManager[Prepare]
    values: Callable[[Any], dict[str, float]]


@dataclass(frozen=True)
class Case:
    """One piece of work: its title, the seconds that our median should stay below, and who does it.

    The first of the contestants is ours.
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
    running: list[tuple[Prepare, Row, list[float], int]] = []
    with ExitStack() as stack:
        for contestant, row in zip(contestants, rows, strict=True):
            prepare = contestant.prepare
            try:
                if isinstance(prepare, AbstractContextManager):
                    prepare = stack.enter_context(prepare)
                first, result, longest = _clock(prepare)
            except ImportError as why:
                row["skipped"] = f"{why.name} is not installed" if why.name else str(why)
                continue
            row["values"] = contestant.values(result)
            slow = longest > SLOW
            more = int(SLOW / longest) if repetitions > 2 and not slow else repetitions
            expected = _SLOW_REPETITIONS if slow else min(max(repetitions, more), _MOST_REPETITIONS)
            running.append((prepare, row, [first] if slow else [], expected))
        while turn := [one for one in running if len(one[2]) < one[3]]:
            for prepare, _, taken, _ in turn:
                taken.append(_clock(prepare)[0])
    for _, row, taken, _ in running:
        row |= {"median": statistics.median(taken), "min": min(taken), "repetitions": len(taken)}
    return rows


def _clock(prepare: Prepare) -> tuple[float, Any, float]:
    """Return the seconds that count, the result, and the most seconds of both kinds."""
    run = prepare()
    start = time.perf_counter()
    result = run()
    passed = time.perf_counter() - start
    if isinstance(result, Inside):
        return result.seconds, result.result, max(passed, result.seconds)
    return passed, result, passed


# -- peers --------------------------------------------------------------------------------------


def peers_of(
    work: str,
    values: Callable[[Any], dict[str, float]],
    arrays: Mapping[str, NDArray[Any]],
    **options: Any,
) -> Iterator[Contestant]:
    """Yield those that `peers.toml` has for a work, here or in their own environment.

    Each takes the arrays that it has parameters for.
    """
    for name, line in PEERS[work].items():
        how = options | line
        function = getattr(peers, how.pop("function"))
        takes = inspect.signature(function).parameters
        given = {k: v for k, v in arrays.items() if k in takes}
        if function.__name__.startswith((*APART, PFL)):
            yield Contestant(name, apart(function.__name__, given, **how), values)
        else:
            yield Contestant(name, partial(function, **given, **how), values)


@contextmanager
def apart(function: str, arrays: Mapping[str, NDArray[Any]], **options: Any) -> Iterator[Prepare]:
    """Start a process for one peer; it ends when the block is left.

    Its interpreter is `FEDCAL_PEERS`, or that of `peers/` (or `pfl/`) inside our own environment.

    Raises
    ------
    ImportError
        There is no environment, the peer is not in it, or it failed.
    """
    where = PFL if function.startswith(PFL) else "peers"
    python = Path(os.environ.get(VARIABLE) or Path(sys.prefix) / where / "bin" / "python")
    if not python.is_file():
        raise ImportError(f"no environment for {', '.join((*APART, PFL))}: `make bench-all`")
    with ExitStack() as stack:
        with TemporaryDirectory(prefix="fedcal-peer-") as folder:
            for name, array in arrays.items():
                np.save(Path(folder, f"{name}.npy"), array)
            requests = json.dumps({"peer": function, "folder": folder, "options": options})
            process = stack.enter_context(
                subprocess.Popen(
                    [str(python), "-P", peers.__file__, requests],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | _SETTINGS,
                    encoding="utf-8",
                    start_new_session=True,  # Ctrl-C is for us; we end it
                )
            )
            _repetition(process)  # on few rows, once it has read all of them
        yield lambda: partial(_repetition, process)


def _repetition(process: subprocess.Popen[str]) -> Inside:
    """Ask for one repetition: a line to the process, and one back."""
    requests: Any = process.stdin
    answers: Any = process.stdout
    with contextlib.suppress(BrokenPipeError):  # it has ended, and so have its answers
        print("null", file=requests, flush=True)
    line = answers.readline()
    if not line.endswith("\n"):
        raise ImportError("its process has ended")
    answer = json.loads(line)
    if "failed" in answer:
        raise ImportError(answer["failed"])
    return Inside(**answer)
