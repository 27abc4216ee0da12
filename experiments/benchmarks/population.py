"""Ten thousand clients in a process of their own, so that its peak memory is theirs alone."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fedcal.experiments.benchmarks.timing import Inside
from fedcal.experiments.engines.inline import run_inline
from fedcal.privacy.plan import Federation
from fedcal.shards import Shards
from fedcal.strategies import FedBin

_CLASSES = 10


def run_apart(clients: int, rows: int, rounds: int) -> Inside:
    """Run `measure` in a fresh interpreter."""
    command = [sys.executable, "-m", __name__, str(clients), str(rows), str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return Inside(told.pop("seconds"), told)


def measure(clients: int, rows: int, rounds: int) -> dict[str, float]:
    """FedBin with clipping (epsilon = 1) over synthetic rows, `rows` per client on average.

    Returns
    -------
    seconds of all rounds; peak MiB of the process before (interpreter, imports and rows) and
    after them
    """
    rng = np.random.default_rng(0)
    n = clients * rows
    labels = rng.integers(0, _CLASSES, n)
    logits = rng.normal(scale=3.0, size=(n, _CLASSES))
    logits[np.arange(n), labels] += 3.0
    shards = Shards.from_owner(logits, labels, rng.integers(0, clients, n), clients)
    strategy = FedBin(
        Federation(clients, _CLASSES, rounds=rounds, epsilon=1.0), secure_aggregation="none"
    )
    before = peak_mib()
    start = time.perf_counter()
    run_inline(strategy, shards)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "MiB before": before, "peak MiB": peak_mib()}


def peak_mib() -> float:
    """Most memory that this process ever held, in MiB.

    Linux tells `getrusage` also what the parent held when it started us, so its own figure for
    this process comes first.
    """
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


if __name__ == "__main__":
    print(json.dumps(measure(*(int(a) for a in sys.argv[1:]))))
