"""Peers whose packages clash with ours or are heavy: timed by an interpreter of their own.

`make bench` makes that environment. Arrays go over as `.npy` files, once; afterwards every turn
is a line out and a line back, with the seconds that passed inside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.experiments.benchmarks.timing import Inside, PeerMissing
from fedcal.experiments.engines.processes import LineProcess
from fedcal.experiments.runs.pools import THREADS

VARIABLE = "FEDCAL_PEERS"
"""Environment variable that names the peers' interpreter."""

DISTRIBUTIONS = ("netcal", "probmetrics")

_WORKER = Path(__file__).with_name("peer_worker.py")
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
"""numpy asks for huge pages by itself, torch only if it is told to before it is imported: without
them a peer's fit of 50,000 x 1,000 spends three quarters of its time in page faults."""

_SETTINGS = {
    **HUGE_PAGES,
    "TQDM_DISABLE": "1",
    "PYTHONWARNINGS": "ignore",
    **dict.fromkeys(THREADS, "1"),
}


def interpreter() -> Path:
    """Where the peers' Python is: `FEDCAL_PEERS`, or `peers/` inside our own environment.

    Raises
    ------
    PeerMissing
        if nothing is there
    """
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path(sys.prefix) / "peers" / "bin" / "python"
    if not path.is_file():
        raise PeerMissing(f"no environment for {' and '.join(DISTRIBUTIONS)}: `make bench` has one")
    return path


def versions() -> dict[str, str | None]:
    """Versions of the peers that live apart; None = not installed."""
    code = (
        "import json, sys\nfrom importlib.metadata import distributions\n"
        "found = {d.name: d.version for d in distributions()}\n"
        "print(json.dumps({n: found.get(n) for n in sys.argv[1:]}))"
    )
    try:
        done = subprocess.run(
            [interpreter(), "-P", "-c", code, *DISTRIBUTIONS],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    except (PeerMissing, OSError, subprocess.CalledProcessError):
        return dict.fromkeys(DISTRIBUTIONS)
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


class Apart:
    """One peer's process, started when it is first needed and kept until `close`.

    Parameters
    ----------
    task : a key of `peer_worker.TASKS`
    arrays : what the task takes, by name
    options : its plain parameters
    """

    def __init__(self, task: str, arrays: Mapping[str, NDArray[Any]], **options: Any) -> None:
        self._task, self._arrays, self._options = task, arrays, options
        self._process: LineProcess | None = None

    def prepare(self) -> Callable[[], Inside]:
        """Start the process if there is none.

        Raises
        ------
        PeerMissing
            There is no environment, the peer is not in it, or it failed.
        """
        self._process = self._process or self._start()
        return partial(self._repetition, self._process)

    def close(self) -> None:
        """End the process: it leaves when its input ends."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> LineProcess:
        python = interpreter()
        with TemporaryDirectory(prefix="fedcal-peer-") as folder:
            for name, array in self._arrays.items():
                np.save(Path(folder, f"{name}.npy"), array)
            asked = {"task": self._task, "folder": folder, "options": self._options}
            command: list[str | Path] = [python, "-P", str(_WORKER), json.dumps(asked)]
            process = LineProcess(command, os.environ | _SETTINGS)
            try:
                _checked(process.answer)  # it has read the arrays
            except PeerMissing:
                process.close()
                raise
        return process

    def _repetition(self, process: LineProcess) -> Inside:
        answer = _checked(partial(process.ask, None))
        return Inside(answer["seconds"], answer["result"])


def _checked(ask: Callable[[], Any]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask()
    except EOFError:
        raise PeerMissing("its process has ended") from None
    if "failed" in answer:
        raise PeerMissing(answer["failed"])
    return answer
