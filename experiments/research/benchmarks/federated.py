"""Rounds of class histograms: our vectorised loop beside loops over messages."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedcal import datasets, partition
from fedcal.core.shards import Shards
from fedcal.experiments.research.benchmarks.in_process import run_in_process
from fedcal.experiments.research.benchmarks.pooled import DATA, synthetic
from fedcal.experiments.research.benchmarks.timing import (
    Case,
    Contestant,
    Inside,
    checksum,
    peak_mib,
    peer,
)
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.engines.ray import run_flower
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies.methods.histograms import FedBin
from fedcal.strategies.server.job import Job

ROUNDS = 12
ENGINES = {
    "fedcal inline": run_inline,
    "Flower's loop, in-process grid": run_in_process,
    "Flower's loop, Ray": None,
}


def _need_ray() -> None:
    if find_spec("ray") is None:
        raise ImportError("ray is not installed: the extra fedcal[simulation] has it")


def _released(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    values = np.concatenate([np.asarray(r["values"], np.float64).ravel() for r in records])
    return {"releases": len(records), "released crc32": checksum(values)}


def engine_round(clients: int, rows: int, quick: bool) -> Case:
    """Time a later round of a run in each engine, without the start of Ray and the first round.

    The released values of all rounds are compared bit for bit; pfl's round has noise of its own.
    """
    clients, rounds = (20, 3) if quick else (clients, ROUNDS)
    data, n = datasets.load(DATA), clients * rows
    owner = partition.iid(data.labels[:n], clients, np.random.default_rng(0))
    shards = Shards.from_owner(data.logits[:n], data.labels[:n], owner, clients)
    arrays = {"logits": shards.logits, "labels": shards.labels, "owner": shards.owner}
    contestants = [
        Contestant(name, partial(_later, engine, shards, rounds), _released)
        for name, engine in ENGINES.items()
    ]
    pfl = peer("pfl-research", lambda total: {}, "pfl_round", arrays, bins=128, bound=10.0)
    size = f"{clients} clients x {rows} rows x {shards.classes} classes"
    return Case(f"a later histogram round, {size}", None, [*contestants, pfl])


def _later(engine: Any, shards: Shards, rounds: int) -> Callable[[], Inside]:
    fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
    job = Job("fedbin", Federation(fresh.clients, fresh.classes, rounds=rounds, epsilon=1.0))
    drive: Any = partial(run_flower, job, fresh)
    if engine is None:
        _need_ray()
    else:
        drive = partial(job.run, partial(engine, shards=fresh))
    ended: list[float] = []

    def run() -> Inside:
        outcome = drive(progress=lambda done, planned: ended.append(time.perf_counter()))
        return Inside((ended[-1] - ended[0]) / (rounds - 1), outcome.records)

    return run


def command(quick: bool) -> Case:
    """`fedcal simulate` with one round: interpreters, imports, data, result files, all of it."""
    clients = "20" if quick else "100"
    line = [sys.executable, "-c", "from fedcal.experiments.cli.main import main; main()"]
    line += ["simulate", "--quiet", "--method", "fedbin", "--data", DATA, "--partition", "iid"]
    line += ["--clients", clients, "--rounds", "1", "--epsilon", "1"]

    def run(*options: str) -> list[dict[str, Any]]:
        """Run the command line in a new process, until its result files are there."""
        with TemporaryDirectory() as folder:
            subprocess.run([*line, *options, "--out", folder], check=True)
            lines = Path(folder, "rounds.jsonl").read_text("utf-8").splitlines()
        return [json.loads(record) for record in lines]

    def on_ray() -> Callable[[], list[dict[str, Any]]]:
        _need_ray()
        return partial(run, "--engine", "flower")

    return Case(
        f"the command for one histogram round, {clients} clients",
        None,
        [
            Contestant("fedcal simulate", lambda: run, _released),
            Contestant("fedcal simulate --engine flower", on_ray, _released),
        ],
    )


def population(quick: bool) -> Case:
    """Time rounds over many clients in a process of its own, so that its peak memory is its own."""
    clients, rows, rounds = (200, 10, 2) if quick else (10_000, 10, ROUNDS)
    line = [sys.executable, "-m", __name__, *map(str, (clients, rows, rounds))]

    def run() -> Inside:
        done = subprocess.run(line, check=True, stdout=subprocess.PIPE)
        return Inside(*json.loads(done.stdout))

    title = f"{clients:,} clients x {rounds} histogram rounds, {clients * rows:,} rows"
    return Case(title, 5.0, [Contestant("fedcal inline", lambda: run, dict)])


def main(clients: int, rows: int, rounds: int) -> None:
    """Print seconds, and the peak of memory before (interpreter, imports and rows) and after."""
    logits, labels = synthetic(clients * rows, 10)
    owner = np.random.default_rng(0).integers(0, clients, len(labels))
    shards = Shards.from_owner(logits, labels, owner, clients)
    federation = Federation(clients, shards.classes, rounds=rounds, epsilon=1.0)
    before, start = peak_mib(), time.perf_counter()
    run_inline(FedBin(federation, secure_aggregation="none"), shards)
    seconds = time.perf_counter() - start
    print(json.dumps((seconds, {"MiB before": before, "peak MiB": peak_mib()})))


CASES: dict[str, Callable[[bool], Case]] = {
    "engine-round-100": partial(engine_round, 100, 50),
    "engine-round-500": partial(engine_round, 500, 10),
    "command": command,
    "population": population,
}

if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
